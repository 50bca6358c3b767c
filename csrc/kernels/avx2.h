// Vector pieces of docs/arithmetic.md for the AVX2 kernel files. Everything is static: nothing here may be shared with
// files compiled for another instruction set.
#pragma once
#include <immintrin.h>

#include "kernels.h"

namespace offramp::avx2 {

static inline __m256 load8(const float* p) { return _mm256_loadu_ps(p); }
static inline void store8(float* p, __m256 v) { _mm256_storeu_ps(p, v); }
static inline __m256 mul_add(__m256 acc, __m256 a, __m256 b) { return _mm256_add_ps(acc, _mm256_mul_ps(a, b)); }

static inline __m256 load8_f16(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

// ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7)) of the eight lanes.
static inline float fold8(__m256 p) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(p), _mm256_extractf128_ps(p, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// max(c, x) and min(c, x) written as c > x ? c : x: the second operand is returned when either is NaN.
static inline __m256 exp8(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(-87.0f), x);
  x = _mm256_min_ps(_mm256_set1_ps(88.0f), x);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 r = _mm256_sub_ps(_mm256_sub_ps(x, _mm256_mul_ps(n, _mm256_set1_ps(0.693359375f))),
                                 _mm256_mul_ps(n, _mm256_set1_ps(-2.12194440e-4f)));
  __m256 p = _mm256_set1_ps(1.0f / 5040.0f);
  p = mul_add(_mm256_set1_ps(1.0f / 720.0f), p, r);
  p = mul_add(_mm256_set1_ps(1.0f / 120.0f), p, r);
  p = mul_add(_mm256_set1_ps(1.0f / 24.0f), p, r);
  p = mul_add(_mm256_set1_ps(1.0f / 6.0f), p, r);
  p = mul_add(_mm256_set1_ps(0.5f), p, r);
  p = mul_add(_mm256_set1_ps(1.0f), p, r);
  p = mul_add(_mm256_set1_ps(1.0f), p, r);
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}

// Lanes below n.
static inline __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline void store_lanes(float* p, __m256 v, int n) {
  if (n >= kLanes) {
    store8(p, v);
  } else {
    _mm256_maskstore_ps(p, first_lanes(n), v);
  }
}

void matmul(const PackedMatrix* m, const Activations* a, int group_begin, int group_end, float* out,
            int64_t out_stride);
void embed_row(const PackedMatrix* m, int token, float* out);
extern const Attention kAttention;

}  // namespace offramp::avx2
