// K/V storage and attention, AVX-512.
#include "avx2.h"

namespace offramp::avx512 {
namespace {

using avx2::fold8;

__m512 exp16(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-87.0f), x);
  x = _mm512_min_ps(_mm512_set1_ps(88.0f), x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(_mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(0.693359375f))),
                                 _mm512_mul_ps(n, _mm512_set1_ps(-2.12194440e-4f)));
  const float terms[] = {1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};
  __m512 p = _mm512_set1_ps(1.0f / 5040.0f);
  for (const float term : terms) p = _mm512_add_ps(_mm512_set1_ps(term), _mm512_mul_ps(p, r));
  const __m512i power = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
  return _mm512_mul_ps(p, _mm512_castsi512_ps(power));
}

struct Simd {
  using V = __m512;
  static constexpr int kWidth = 16;
  static V zero() { return _mm512_setzero_ps(); }
  static V set(float x) { return _mm512_set1_ps(x); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V load_f16(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V exp(V x) { return exp16(x); }
  static float exp_of(float x) { return _mm512_cvtss_f32(exp16(_mm512_set1_ps(x))); }
  // The largest of m and of [begin, end) of 32 values.
  static float largest(const float* e, int begin, int end, float m) {
    const __m512 low = _mm512_mask_loadu_ps(_mm512_set1_ps(m), lanes(begin, end), e);
    const __m512 high = _mm512_mask_loadu_ps(_mm512_set1_ps(m), lanes(begin - 16, end - 16), e + 16);
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(low, high));
    return top > m ? top : m;
  }
  static __mmask16 mask(int n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1u); }
  static __mmask16 lanes(int begin, int end) { return static_cast<__mmask16>(mask(end) & ~mask(begin)); }
  // The lanes [begin, end), zeros elsewhere.
  static V between(V x, int begin, int end) { return _mm512_maskz_mov_ps(lanes(begin, end), x); }
};

#include "attention_simd.h"

}  // namespace

extern const Attention kAttention;
const Attention kAttention = {store_k, store_v, attend, attend_scores, attend_weights, attend_values};

}  // namespace offramp::avx512
