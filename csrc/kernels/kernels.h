// The kernel table: every inner loop of the executor, once per instruction set.
//
// Plain C types only. Each instruction-set file stands alone: it includes this header and intrinsics, defines
// everything else in an anonymous namespace and uses no std:: templates, so the linker can never take a function
// compiled for one instruction set into another path. The arithmetic is fixed bit for bit by docs/arithmetic.md.
#pragma once
#include <cstddef>
#include <cstdint>

namespace offramp {

constexpr int kBlock = 32;  // inner values that share a scale
constexpr int kTile = 16;   // outputs interleaved in a tile
constexpr int kLanes = 8;   // f32 values that the row kernels take together, and the stride of partial sums
constexpr int kPage = 32;   // positions in a K/V page
constexpr int kRowTile = 8; // rows of one sequence that share an attention walk

enum Format : int { kF32 = 0, kQ8 = 1, kQ4 = 2 };

// Weights interleaved by 16 outputs ("group"), so that vector lanes are outputs and nothing is summed across lanes;
// 16 outputs of a pair of inner values are one half of an AVX-512 register of int16, or two of AVX2.
//   f32: [group][inner][16] floats
//   q8:  [group][block]{ f16 scale[16]; int8 q[16 pairs][16 outputs][2] }                        544 bytes, 512 weights
//   q4:  [group][block]{ f16 scale[16]; f16 minimum[16]; u8 codes[8 pair pairs][16 outputs][2] } 320 bytes, 512 weights
//        low nibble: pair 2c, high nibble: pair 2c + 1
struct PackedMatrix {
  const uint8_t* tiles;
  int format;
  int out;     // output features; the last group is padded with zeros
  int in;      // input features
  int blocks;  // ceil(in / 32); unused for f32
};

constexpr int kHalves = 2 * kTile;  // bytes of one f16 an output
constexpr int kQ8Tile = kHalves + 512;
constexpr int kQ4Tile = 2 * kHalves + 256;

// Input rows of a product, in the forms that the formats need.
struct Activations {
  const float* values;      // [rows][value_stride]
  const int16_t* quants;    // [rows][blocks * 32], zero padded
  const float* scales;      // [rows]
  const float* block_sums;  // [rows][blocks], exact sums of quants as f32
  int rows;
  int blocks;
  int64_t value_stride;
};

// K of one layer: [page][kv head][head_dim][32 positions]; V: [page][kv head][32 positions][head_pad].
struct KvLayer {
  void* k;
  void* v;
  int is_f16;
  int kv_heads;
  int head_dim;
  int head_pad;  // head_dim rounded up to 8
};

// Query heads that may share one K/V head.
constexpr int kMaxGroup = 32;

// What the passes of a long walk hand on, for one row and query head.
struct LongWalk {
  float* scores;   // [pages * 32]: scores, then weights
  float* rescale;  // [pages]: the factor for everything before the page
  float* inverse;  // [1]: one over the sum of weights
};

// Rows of one sequence against one K/V head and the query heads that share it.
struct AttendTask {
  const int32_t* pages;
  int kv_head;
  int query_heads;  // query heads handled, adjacent in q and out; at most kMaxGroup
  int rows;         // at most kRowTile
  const float* q[kRowTile];
  float* out[kRowTile];
  int32_t position[kRowTile];
  int32_t first[kRowTile];  // the first position that the row sees; later ones up to its own are visible
  int32_t prefix_len[kRowTile];
  int32_t slot[kRowTile];
  const int32_t* ancestors[kRowTile];
  float scale;
  float* scratch;         // attend_scratch_floats()
  const LongWalk* walks;  // [rows][walk_stride], this task's first head at 0; for the passes of a long walk
  int walk_stride;
};

static inline const LongWalk* walk_of(const AttendTask* t, int row, int head) {
  return t->walks + static_cast<int64_t>(row) * t->walk_stride + head;
}

struct Attention {
  void (*store_k)(const KvLayer* kv, int page, int offset, int kv_head, const float* k);
  void (*store_v)(const KvLayer* kv, int page, int offset, int kv_head, const float* v);
  // The whole walk at once, for many rows.
  void (*attend)(const KvLayer* kv, const AttendTask* task);
  // The same in three passes that threads can share out, for few rows and a long context: scores of pages
  // [first_page, last_page), then weights of a row and head, then columns [d_begin, d_end) of the output (multiples of 8).
  void (*scores)(const KvLayer* kv, const AttendTask* task, int first_page, int last_page);
  void (*weights)(const AttendTask* task, int row, int head);
  void (*values)(const KvLayer* kv, const AttendTask* task, int d_begin, int d_end);
};

// How far a row's largest logit stands out. Where that one is not finite, `total` is NaN and the rest means nothing.
struct Peak {
  float largest;
  float second;   // exp(x - largest) of the second largest, next to 0 for a single logit
  float total;    // sum of exp(x - largest)
  float falls;    // sum of exp(x - largest) * (x - largest)
  int32_t index;  // of the largest, the lowest one
};

struct Kernels {
  const char* name;
  void (*rms_norm)(const float* x, const float* w, int n, float eps, float* y);  // y may be x
  // Quantizes n values into blocks * 32 (zero padded).
  void (*quantize_row)(const float* x, int n, int blocks, int16_t* q, float* scale, float* block_sums);
  // out[r * out_stride + o] for outputs of groups [group_begin, group_end); never writes past m->out.
  void (*matmul)(const PackedMatrix* m, const Activations* a, int group_begin, int group_end, float* out,
                 int64_t out_stride);
  void (*embed_row)(const PackedMatrix* m, int token, float* out);
  void (*rope)(float* head, int rotary_dim, const float* cosines, const float* sines);
  void (*swiglu)(const float* gate, const float* up, float* out, int n);
  void (*geglu)(const float* gate, const float* up, float* out, int n);
  void (*add)(float* h, const float* y, int n);
  const Attention* attention;
  // log(sum(exp(x))) of n values, in the order of docs/arithmetic.md.
  float (*log_sum_exp)(const float* x, int64_t n);
  // The peak of n >= 1 logits, in the order of docs/arithmetic.md.
  void (*peak)(const float* x, int64_t n, Peak* out);
};

static inline constexpr int64_t attend_scratch_floats(int head_dim, int head_pad, int query_heads) {
  return 2 * (int64_t{kPage} * head_dim + int64_t{kPage} * head_pad) + int64_t{kRowTile} * query_heads * head_pad + 64;
}

extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;  // AVX2 but for products and attention

}  // namespace offramp
