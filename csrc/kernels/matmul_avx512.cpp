// Products of a few rows with a packed matrix, AVX-512 with VNNI. A register holds the 16 outputs of a group; R rows share
// every weight load, and one vpdpwssd multiplies and adds 32 products (exact in int32, so the bits are those of AVX2).
// One row is bound by the bytes of the weights; eight rows still take less arithmetic than reading them does time.
#include <immintrin.h>

#include "kernels.h"

namespace offramp::avx512 {
namespace {

constexpr int kMaxRows = 8;
constexpr int kMaxGroups = 2;

// R rows against G groups of outputs: each activation is broadcast once for all groups, as loads are what limits a tile
// of one group.
struct Task {
  const uint8_t* weights;
  int64_t group_bytes;
  int blocks;
  int in;
  int outputs;  // valid ones from the first group on
  bool fetch;   // weights ahead of their use
  const float* values[kMaxRows];
  const int16_t* quants[kMaxRows];
  const float* block_sums[kMaxRows];
  float scales[kMaxRows];
  float* out[kMaxRows];
};

inline __m512i pair_of(const int16_t* quants) {
  int32_t pair;
  __builtin_memcpy(&pair, quants, 4);
  return _mm512_set1_epi32(pair);
}

inline __m256i load32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

inline __m512 load16_f16(const uint8_t* p) { return _mm512_cvtph_ps(load32(p)); }

// Separate rounding of product and sum: no fused multiply-add.
inline __m512 mul_add(__m512 acc, __m512 a, __m512 b) { return _mm512_add_ps(acc, _mm512_mul_ps(a, b)); }

// The hardware's own prefetching stops at every 4 KiB. One or two rows, and the head up to four, keep memory busy as it is,
// and asking early only gets in the way (measured: 15 to 25 % slower); with more rows the wait is the loss (10 to 15 %).
constexpr int kFetchAhead = 4096;
constexpr int kLongOutput = 8192;

bool fetches(const PackedMatrix* m, int rows) { return rows >= (m->out > kLongOutput ? 5 : 3); }

template <int Bytes>
inline void fetch_ahead(const uint8_t* tile) {
  for (int at = kFetchAhead; at < kFetchAhead + Bytes; at += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(tile + at), _MM_HINT_T1);
  }
}

template <int R, int G>
void store_scaled(const Task& t, const __m512 (&acc)[R][G]) {
  for (int g = 0; g < G; ++g) {
    const int left = t.outputs - g * kTile;
    const __mmask16 valid = left >= kTile ? 0xffff : static_cast<__mmask16>((1u << left) - 1u);
    for (int r = 0; r < R; ++r) {
      _mm512_mask_storeu_ps(t.out[r] + g * kTile, valid, _mm512_mul_ps(acc[r][g], _mm512_set1_ps(t.scales[r])));
    }
  }
}

template <int R, int G>
void run_q8(const Task& t) {
  __m512 acc[R][G];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) acc[r][g] = _mm512_setzero_ps();
  for (int b = 0; b < t.blocks; ++b) {
    const uint8_t* tile = t.weights + static_cast<int64_t>(b) * kQ8Tile;
    for (int g = 0; t.fetch && g < G; ++g) fetch_ahead<kQ8Tile>(tile + g * t.group_bytes);
    __m512i sum[R][G];
    for (int r = 0; r < R; ++r)
      for (int g = 0; g < G; ++g) sum[r][g] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int p = 0; p < kBlock / 2; ++p) {
      __m512i weight[G];
      for (int g = 0; g < G; ++g) {
        weight[g] = _mm512_cvtepi8_epi16(load32(tile + g * t.group_bytes + kHalves + p * 2 * kTile));
      }
      for (int r = 0; r < R; ++r) {
        const __m512i x = pair_of(t.quants[r] + b * kBlock + 2 * p);
        for (int g = 0; g < G; ++g) sum[r][g] = _mm512_dpwssd_epi32(sum[r][g], weight[g], x);
      }
    }
    for (int g = 0; g < G; ++g) {
      const __m512 scale = load16_f16(tile + g * t.group_bytes);
      for (int r = 0; r < R; ++r) acc[r][g] = mul_add(acc[r][g], _mm512_cvtepi32_ps(sum[r][g]), scale);
    }
  }
  store_scaled<R, G>(t, acc);
}

// One group: the unpacked codes of two would not leave enough registers (measured: twice the time for one row).
template <int R>
void run_q4(const Task& t) {
  const __m512i low = _mm512_set1_epi16(0x000f);
  __m512 acc[R][1];
  for (int r = 0; r < R; ++r) acc[r][0] = _mm512_setzero_ps();
  for (int b = 0; b < t.blocks; ++b) {
    const uint8_t* tile = t.weights + static_cast<int64_t>(b) * kQ4Tile;
    if (t.fetch) fetch_ahead<kQ4Tile>(tile);
    __m512i sum[R];
    for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int c = 0; c < kBlock / 4; ++c) {
      const __m512i codes = _mm512_cvtepu8_epi16(load32(tile + 2 * kHalves + c * 2 * kTile));
      const __m512i first = _mm512_and_si512(codes, low);
      const __m512i second = _mm512_srli_epi16(codes, 4);
      for (int r = 0; r < R; ++r) {
        const int16_t* quants = t.quants[r] + b * kBlock + 4 * c;
        sum[r] = _mm512_dpwssd_epi32(sum[r], first, pair_of(quants));
        sum[r] = _mm512_dpwssd_epi32(sum[r], second, pair_of(quants + 2));
      }
    }
    const __m512 scale = load16_f16(tile);
    const __m512 minimum = load16_f16(tile + kHalves);
    for (int r = 0; r < R; ++r) {
      acc[r][0] = mul_add(acc[r][0], _mm512_cvtepi32_ps(sum[r]), scale);
      acc[r][0] = mul_add(acc[r][0], _mm512_set1_ps(t.block_sums[r][b]), minimum);
    }
  }
  store_scaled<R, 1>(t, acc);
}

template <int R, int G>
void run_f32(const Task& t) {
  __m512 acc[R][G];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) acc[r][g] = _mm512_setzero_ps();
  const float* w = reinterpret_cast<const float*>(t.weights);
  const int64_t group = t.group_bytes / 4;
  for (int i = 0; i < t.in; ++i) {
    __m512 weight[G];
    for (int g = 0; g < G; ++g) weight[g] = _mm512_loadu_ps(w + g * group + static_cast<int64_t>(i) * kTile);
    for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_set1_ps(t.values[r][i]);
      for (int g = 0; g < G; ++g) acc[r][g] = mul_add(acc[r][g], weight[g], x);
    }
  }
  store_scaled<R, G>(t, acc);
}

using Run = void (*)(const Task& t);
constexpr Run kQ4Runs[kMaxRows] = {run_q4<1>, run_q4<2>, run_q4<3>, run_q4<4>,
                                   run_q4<5>, run_q4<6>, run_q4<7>, run_q4<8>};
constexpr Run kQ8Runs[kMaxGroups][kMaxRows] = {
    {run_q8<1, 1>, run_q8<2, 1>, run_q8<3, 1>, run_q8<4, 1>, run_q8<5, 1>, run_q8<6, 1>, run_q8<7, 1>, run_q8<8, 1>},
    {run_q8<1, 2>, run_q8<2, 2>, run_q8<3, 2>, run_q8<4, 2>, run_q8<5, 2>, run_q8<6, 2>, run_q8<7, 2>, run_q8<8, 2>},
};
constexpr Run kF32Runs[kMaxGroups][kMaxRows] = {
    {run_f32<1, 1>, run_f32<2, 1>, run_f32<3, 1>, run_f32<4, 1>, run_f32<5, 1>, run_f32<6, 1>, run_f32<7, 1>,
     run_f32<8, 1>},
    {run_f32<1, 2>, run_f32<2, 2>, run_f32<3, 2>, run_f32<4, 2>, run_f32<5, 2>, run_f32<6, 2>, run_f32<7, 2>,
     run_f32<8, 2>},
};

Run run_for(int format, int rows, int groups) {
  if (format == kQ4) return kQ4Runs[rows - 1];
  return (format == kQ8 ? kQ8Runs : kF32Runs)[groups - 1][rows - 1];
}

int64_t group_bytes(const PackedMatrix* m) {
  if (m->format == kF32) return static_cast<int64_t>(m->in) * kTile * 4;
  return static_cast<int64_t>(m->blocks) * (m->format == kQ8 ? kQ8Tile : kQ4Tile);
}

}  // namespace

// Groups outside, rows inside: the weights of two groups (12 to 100 kB) stay in the first two cache levels for all rows.
void matmul(const PackedMatrix* m, const Activations* a, int group_begin, int group_end, float* out,
            int64_t out_stride) {
  Task t = {};
  t.group_bytes = group_bytes(m);
  t.blocks = m->blocks;
  t.in = m->in;
  t.fetch = fetches(m, a->rows);
  // Few rows are bound by the bytes of the weights, best read as one stream. Measured for each format.
  const bool few = a->rows == 1 || (m->format == kQ8 && a->rows <= kMaxRows / 2);
  const bool one_stream = few || m->format == kQ4 || (m->format == kF32 && a->rows > 2 * kMaxRows);
  const int most = one_stream ? 1 : kMaxGroups;
  for (int group = group_begin; group < group_end; group += most) {
    const int groups = group_end - group < most ? group_end - group : most;
    t.weights = m->tiles + group * t.group_bytes;
    t.outputs = m->out - group * kTile;
    for (int row = 0; row < a->rows; row += kMaxRows) {
      const int rows = a->rows - row < kMaxRows ? a->rows - row : kMaxRows;
      for (int r = 0; r < rows; ++r) {
        const int64_t index = row + r;
        t.values[r] = a->values + index * a->value_stride;
        t.quants[r] = a->quants + index * a->blocks * kBlock;
        t.block_sums[r] = a->block_sums + index * a->blocks;
        t.scales[r] = m->format == kF32 ? 1.0f : a->scales[index];
        t.out[r] = out + index * out_stride + static_cast<int64_t>(group) * kTile;
      }
      run_for(m->format, rows, groups)(t);
    }
  }
}

}  // namespace offramp::avx512
