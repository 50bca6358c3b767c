// Products of a few rows with a packed matrix, AVX-512 with VNNI. A register holds the 16 outputs of a group; R rows share
// every weight load, and one vpdpwssd multiplies and adds 32 products (exact in int32, so the bits are those of AVX2).
// One row is bound by the bytes of the weights; eight rows still take less arithmetic than reading them does time.
#include <immintrin.h>

#include "kernels.h"

namespace offramp::avx512 {
namespace {

constexpr int kMaxRows = 8;

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

inline __m512i pair_of(const int16_t* quants) {
  int32_t pair;
  __builtin_memcpy(&pair, quants, 4);
  return _mm512_set1_epi32(pair);
}

inline __m256i load32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

inline __m512 load16_f16(const uint8_t* p) { return _mm512_cvtph_ps(load32(p)); }

// Separate rounding of product and sum: no fused multiply-add.
inline __m512 mul_add(__m512 acc, __m512 a, __m512 b) { return _mm512_add_ps(acc, _mm512_mul_ps(a, b)); }

template <int R>
void store_scaled(const Task& t, const __m512 (&acc)[R]) {
  const __mmask16 valid = t.outputs >= kTile ? 0xffff : static_cast<__mmask16>((1u << t.outputs) - 1u);
  for (int r = 0; r < R; ++r) {
    _mm512_mask_storeu_ps(t.out[r], valid, _mm512_mul_ps(acc[r], _mm512_set1_ps(t.scales[r])));
  }
}

template <int R>
void run_q8(const Task& t) {
  __m512 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  for (int b = 0; b < t.blocks; ++b) {
    const uint8_t* tile = t.weights + static_cast<int64_t>(b) * kQ8Tile;
    __m512i sum[R];
    for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int p = 0; p < kBlock / 2; ++p) {
      const __m512i weight = _mm512_cvtepi8_epi16(load32(tile + kHalves + p * 2 * kTile));
      for (int r = 0; r < R; ++r) sum[r] = _mm512_dpwssd_epi32(sum[r], weight, pair_of(t.quants[r] + b * kBlock + 2 * p));
    }
    const __m512 scale = load16_f16(tile);
    for (int r = 0; r < R; ++r) acc[r] = mul_add(acc[r], _mm512_cvtepi32_ps(sum[r]), scale);
  }
  store_scaled<R>(t, acc);
}

template <int R>
void run_q4(const Task& t) {
  const __m512i low = _mm512_set1_epi16(0x000f);
  __m512 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  for (int b = 0; b < t.blocks; ++b) {
    const uint8_t* tile = t.weights + static_cast<int64_t>(b) * kQ4Tile;
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
      acc[r] = mul_add(acc[r], _mm512_cvtepi32_ps(sum[r]), scale);
      acc[r] = mul_add(acc[r], _mm512_set1_ps(t.block_sums[r][b]), minimum);
    }
  }
  store_scaled<R>(t, acc);
}

template <int R>
void run_f32(const Task& t) {
  __m512 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  const float* w = reinterpret_cast<const float*>(t.weights);
  for (int i = 0; i < t.in; ++i) {
    const __m512 weight = _mm512_loadu_ps(w + static_cast<int64_t>(i) * kTile);
    for (int r = 0; r < R; ++r) acc[r] = mul_add(acc[r], weight, _mm512_set1_ps(t.values[r][i]));
  }
  store_scaled<R>(t, acc);
}

template <int R>
void run(int format, const Task& t) {
  if (format == kF32) {
    run_f32<R>(t);
  } else if (format == kQ8) {
    run_q8<R>(t);
  } else {
    run_q4<R>(t);
  }
}

using Run = void (*)(int format, const Task& t);
constexpr Run kRuns[kMaxRows] = {run<1>, run<2>, run<3>, run<4>, run<5>, run<6>, run<7>, run<8>};

int64_t group_bytes(const PackedMatrix* m) {
  if (m->format == kF32) return static_cast<int64_t>(m->in) * kTile * 4;
  return static_cast<int64_t>(m->blocks) * (m->format == kQ8 ? kQ8Tile : kQ4Tile);
}

}  // namespace

// Groups outside, rows inside: the weights of a group (6 to 50 kB) stay in the first two cache levels for all rows.
void matmul(const PackedMatrix* m, const Activations* a, int group_begin, int group_end, float* out,
            int64_t out_stride) {
  Task t = {};
  t.blocks = m->blocks;
  t.in = m->in;
  for (int group = group_begin; group < group_end; ++group) {
    t.weights = m->tiles + group * group_bytes(m);
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
      kRuns[rows - 1](m->format, t);
    }
  }
}

}  // namespace offramp::avx512
