// K/V storage and attention, AVX2.
#include "avx2.h"

namespace offramp::avx2 {
namespace {

struct Simd {
  using V = __m256;
  static constexpr int kWidth = 8;
  static V zero() { return _mm256_setzero_ps(); }
  static V set(float x) { return _mm256_set1_ps(x); }
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static V load_f16(const uint16_t* p) { return load8_f16(p); }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V exp(V x) { return exp8(x); }
  static float exp_of(float x) { return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x))); }
  static __m256 lanes(int begin, int end) {
    return _mm256_castsi256_ps(_mm256_andnot_si256(first_lanes(begin), first_lanes(end)));
  }
  // The largest of m and of [begin, end) of 32 values.
  static float largest(const float* e, int begin, int end, float m) {
    __m256 top = _mm256_set1_ps(m);
    for (int i = 0; i < end; i += 8) {
      const __m256 seen = lanes(begin - i, end - i);
      top = _mm256_max_ps(top, _mm256_blendv_ps(_mm256_set1_ps(m), _mm256_loadu_ps(e + i), seen));
    }
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
  }
  // The lanes [begin, end), zeros elsewhere.
  static V between(V x, int begin, int end) { return _mm256_and_ps(x, lanes(begin, end)); }
};

#include "attention_simd.h"

}  // namespace

extern const Attention kAttention;
const Attention kAttention = {store_k, store_v, attend, attend_scores, attend_weights, attend_values};

}  // namespace offramp::avx2
