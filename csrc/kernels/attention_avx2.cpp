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
  // The first n lanes, zeros behind.
  static V first(V x, int n) { return _mm256_and_ps(x, _mm256_castsi256_ps(first_lanes(n))); }
};

#include "attention_simd.h"

}  // namespace

extern const Attention kAttention;
const Attention kAttention = {store_k, store_v, attend, attend_scores, attend_weights, attend_values};

}  // namespace offramp::avx2
