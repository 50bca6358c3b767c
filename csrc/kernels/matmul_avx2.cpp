// Products of a few rows with a packed matrix, AVX2. Lanes are outputs; R rows share every weight load. One row is bound
// by the bytes of the weights; from about four rows on by vpmaddwd + vpaddd (512 products take 32 of each), so rows are
// cheap until arithmetic catches up with memory. A core of Zen 3 at 3.1 GHz reaches 70 of the 100 G products a second
// that these two would allow alone.
#include "avx2.h"

namespace offramp::avx2 {
namespace {

constexpr int kMaxRows = 6;  // 12 sums, 2 weights, an activation and a product: all 16 registers
constexpr int kHalfTiles = kTile / kLanes;

// R rows against one group of outputs.
struct Task {
  const uint8_t* weights;
  int blocks;
  int in;
  int outputs;  // valid ones, from 1
  const float* values[kMaxRows];
  const int16_t* quants[kMaxRows];
  const float* block_sums[kMaxRows];
  float scales[kMaxRows];
  float* out[kMaxRows];
};

// The hardware's own prefetching stops at every 4 KiB: weights of q8 and q4 are asked for ahead of it. A third less time
// for one row and up to four on a thread of Zen 3; f32 gains nothing.
constexpr int kFetchAhead = 2048;

template <int Bytes>
inline void fetch_ahead(const uint8_t* tile) {
  for (int at = kFetchAhead; at < kFetchAhead + Bytes; at += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(tile + at), _MM_HINT_T0);
  }
}

template <int R>
struct Sums {
  __m256 f32[R][kHalfTiles];
  __m256i i32[R][kHalfTiles];

  void clear_f32() {
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < kHalfTiles; ++h) f32[r][h] = _mm256_setzero_ps();
  }
  void clear_i32() {
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < kHalfTiles; ++h) i32[r][h] = _mm256_setzero_si256();
  }
  void add(int r, const __m256i (&weight)[kHalfTiles], __m256i x) {
    for (int h = 0; h < kHalfTiles; ++h) i32[r][h] = _mm256_add_epi32(i32[r][h], _mm256_madd_epi16(weight[h], x));
  }
  // Sums stay in their registers from here on. Without it GCC makes a tree of an unrolled loop's additions, whose
  // leaves it keeps in memory: half the speed.
  void pin_i32() {
    for (int r = 0; r < R; ++r)
      for (int h = 0; h < kHalfTiles; ++h) asm("" : "+x"(i32[r][h]));
  }
};

inline __m256i pair_of(const int16_t* quants) {
  int32_t pair;
  __builtin_memcpy(&pair, quants, 4);
  return _mm256_set1_epi32(pair);
}

inline __m128i load16(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

template <int R>
void store_scaled(const Task& t, const Sums<R>& sums) {
  for (int r = 0; r < R; ++r) {
    for (int h = 0; h < kHalfTiles; ++h) {
      const int lanes = t.outputs - h * kLanes;
      const __m256 value = _mm256_mul_ps(sums.f32[r][h], _mm256_set1_ps(t.scales[r]));
      if (lanes > 0) store_lanes(t.out[r] + h * kLanes, value, lanes);
    }
  }
}

template <int R>
void run_q8(const Task& t) {
  Sums<R> sums;
  sums.clear_f32();
  for (int b = 0; b < t.blocks; ++b) {
    const uint8_t* tile = t.weights + static_cast<int64_t>(b) * kQ8Tile;
    fetch_ahead<kQ8Tile>(tile);
    sums.clear_i32();
#pragma GCC unroll 16
    for (int p = 0; p < kBlock / 2; ++p) {
      __m256i weight[kHalfTiles];
      for (int h = 0; h < kHalfTiles; ++h) {
        weight[h] = _mm256_cvtepi8_epi16(load16(tile + kHalves + p * 2 * kTile + h * 2 * kLanes));
      }
      for (int r = 0; r < R; ++r) sums.add(r, weight, pair_of(t.quants[r] + b * kBlock + 2 * p));
      sums.pin_i32();
    }
    for (int h = 0; h < kHalfTiles; ++h) {
      const __m256 scale = load8_f16(tile + h * 2 * kLanes);
      for (int r = 0; r < R; ++r) sums.f32[r][h] = mul_add(sums.f32[r][h], _mm256_cvtepi32_ps(sums.i32[r][h]), scale);
    }
  }
  store_scaled<R>(t, sums);
}

template <int R>
void run_q4(const Task& t) {
  const __m256i low = _mm256_set1_epi16(0x000f);
  Sums<R> sums;
  sums.clear_f32();
  for (int b = 0; b < t.blocks; ++b) {
    const uint8_t* tile = t.weights + static_cast<int64_t>(b) * kQ4Tile;
    fetch_ahead<kQ4Tile>(tile);
    sums.clear_i32();
#pragma GCC unroll 8
    for (int c = 0; c < kBlock / 4; ++c) {
      const int at = b * kBlock + 4 * c;
      __m256i first[kHalfTiles], second[kHalfTiles];
      for (int h = 0; h < kHalfTiles; ++h) {
        const __m256i codes = _mm256_cvtepu8_epi16(load16(tile + 2 * kHalves + c * 2 * kTile + h * 2 * kLanes));
        first[h] = _mm256_and_si256(codes, low);
        second[h] = _mm256_srli_epi16(codes, 4);
      }
      for (int r = 0; r < R; ++r) sums.add(r, first, pair_of(t.quants[r] + at));
      sums.pin_i32();
      for (int r = 0; r < R; ++r) sums.add(r, second, pair_of(t.quants[r] + at + 2));
      sums.pin_i32();
    }
    for (int h = 0; h < kHalfTiles; ++h) {
      const __m256 scale = load8_f16(tile + h * 2 * kLanes);
      const __m256 minimum = load8_f16(tile + kHalves + h * 2 * kLanes);
      for (int r = 0; r < R; ++r) {
        sums.f32[r][h] = mul_add(sums.f32[r][h], _mm256_cvtepi32_ps(sums.i32[r][h]), scale);
        sums.f32[r][h] = mul_add(sums.f32[r][h], _mm256_set1_ps(t.block_sums[r][b]), minimum);
      }
    }
  }
  store_scaled<R>(t, sums);
}

template <int R>
void run_f32(const Task& t) {
  Sums<R> sums;
  sums.clear_f32();
  const float* w = reinterpret_cast<const float*>(t.weights);
  for (int i = 0; i < t.in; ++i) {
    for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_set1_ps(t.values[r][i]);
      for (int h = 0; h < kHalfTiles; ++h)
        sums.f32[r][h] = mul_add(sums.f32[r][h], load8(w + static_cast<int64_t>(i) * kTile + h * kLanes), x);
    }
  }
  store_scaled<R>(t, sums);
}

using Run = void (*)(const Task& t);
constexpr Run kF32Runs[kMaxRows] = {run_f32<1>, run_f32<2>, run_f32<3>, run_f32<4>, run_f32<5>, run_f32<6>};
constexpr Run kQ8Runs[kMaxRows] = {run_q8<1>, run_q8<2>, run_q8<3>, run_q8<4>, run_q8<5>, run_q8<6>};
constexpr Run kQ4Runs[kMaxRows] = {run_q4<1>, run_q4<2>, run_q4<3>, run_q4<4>, run_q4<5>, run_q4<6>};

Run run_for(int format, int rows) {
  return (format == kF32 ? kF32Runs : format == kQ8 ? kQ8Runs : kQ4Runs)[rows - 1];
}

int64_t group_bytes(const PackedMatrix* m) {
  if (m->format == kF32) return static_cast<int64_t>(m->in) * kTile * 4;
  return static_cast<int64_t>(m->blocks) * (m->format == kQ8 ? kQ8Tile : kQ4Tile);
}

}  // namespace

// Groups outside, rows inside: the weights of a group (6 to 50 kB) stay in the first two cache levels for all rows, which
// are taken in parts of like size, as few as do.
void matmul(const PackedMatrix* m, const Activations* a, int group_begin, int group_end, float* out,
            int64_t out_stride) {
  Task t = {};
  t.blocks = m->blocks;
  t.in = m->in;
  for (int group = group_begin; group < group_end; ++group) {
    t.weights = m->tiles + group * group_bytes(m);
    t.outputs = m->out - group * kTile;
    int parts = (a->rows + kMaxRows - 1) / kMaxRows;
    for (int row = 0, rows = 0; row < a->rows; row += rows, --parts) {
      rows = (a->rows - row + parts - 1) / parts;
      for (int r = 0; r < rows; ++r) {
        const int64_t index = row + r;
        t.values[r] = a->values + index * a->value_stride;
        t.quants[r] = a->quants + index * a->blocks * kBlock;
        t.block_sums[r] = a->block_sums + index * a->blocks;
        t.scales[r] = m->format == kF32 ? 1.0f : a->scales[index];
        t.out[r] = out + index * out_stride + static_cast<int64_t>(group) * kTile;
      }
      run_for(m->format, rows)(t);
    }
  }
}

void embed_row(const PackedMatrix* m, int token, float* out) {
  const uint8_t* group = m->tiles + (token / kTile) * group_bytes(m);
  const int lane = token % kTile;
  for (int i = 0; i < m->in; ++i) {
    if (m->format == kF32) {
      out[i] = reinterpret_cast<const float*>(group)[static_cast<int64_t>(i) * kTile + lane];
      continue;
    }
    const uint8_t* tile = group + static_cast<int64_t>(i / kBlock) * (m->format == kQ8 ? kQ8Tile : kQ4Tile);
    const int pair = (i % kBlock) / 2;
    uint16_t half;
    __builtin_memcpy(&half, tile + 2 * lane, 2);
    const float scale = _cvtsh_ss(half);
    if (m->format == kQ8) {
      out[i] = static_cast<float>(static_cast<int8_t>(tile[kHalves + pair * 2 * kTile + lane * 2 + i % 2])) * scale;
      continue;
    }
    const uint8_t byte = tile[2 * kHalves + (pair / 2) * 2 * kTile + lane * 2 + i % 2];
    __builtin_memcpy(&half, tile + kHalves + 2 * lane, 2);
    const float code = static_cast<float>(pair % 2 == 0 ? (byte & 0x0f) : (byte >> 4));
    out[i] = code * scale + _cvtsh_ss(half);
  }
}

}  // namespace offramp::avx2
