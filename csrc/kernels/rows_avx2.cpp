// Row-wise parts of a layer, AVX2, and the kernel tables built on them. All of them are small beside the products.
#include <math.h>

#include "avx2.h"

namespace offramp {
namespace avx2 {
namespace {

__m256 load_tail(const float* p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }

void rms_norm(const float* x, const float* w, int n, float eps, float* y) {
  __m256 p = _mm256_setzero_ps();
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) p = mul_add(p, load8(x + i), load8(x + i));
  if (i < n) p = mul_add(p, load_tail(x + i, n - i), load_tail(x + i, n - i));
  const float r = 1.0f / sqrtf(fold8(p) / static_cast<float>(n) + eps);
  const __m256 factor = _mm256_set1_ps(r);
  for (i = 0; i + kLanes <= n; i += kLanes)
    store8(y + i, _mm256_mul_ps(_mm256_mul_ps(load8(x + i), factor), load8(w + i)));
  for (; i < n; ++i) y[i] = (x[i] * r) * w[i];
}

__m256i magnitude_bits(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }

uint32_t largest_bits(const float* x, int n) {
  __m256i largest = _mm256_setzero_si256();
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = _mm256_max_epu32(largest, magnitude_bits(load8(x + i)));
  if (i < n) largest = _mm256_max_epu32(largest, magnitude_bits(load_tail(x + i, n - i)));
  alignas(32) uint32_t lanes[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  uint32_t best = 0;
  for (int lane = 0; lane < kLanes; ++lane) best = best > lanes[lane] ? best : lanes[lane];
  return best;
}

// Eight values to int32 in +-32767; lanes from n on give 0.
__m256i quantize8(const float* x, int n, __m256 inverse) {
  if (n <= 0) return _mm256_setzero_si256();
  const __m256 value = n >= kLanes ? load8(x) : load_tail(x, n);
  const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(value, inverse));
  return _mm256_max_epi32(_mm256_min_epi32(rounded, _mm256_set1_epi32(32767)), _mm256_set1_epi32(-32767));
}

void quantize_row(const float* x, int n, int blocks, int16_t* q, float* scale, float* block_sums) {
  const uint32_t bits = largest_bits(x, n);
  float amax;
  __builtin_memcpy(&amax, &bits, 4);
  const bool finite = bits < 0x7f800000u;
  const bool zero = !finite || amax < 1e-30f;
  *scale = !finite ? __builtin_nanf("") : zero ? 0.0f : amax / 32767.0f;
  const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 32767.0f / amax);
  for (int b = 0; b < blocks; ++b) {
    int32_t sum = 0;
    alignas(32) int32_t lanes[kBlock];
    for (int j = 0; j < kBlock; j += kLanes) {
      const int at = b * kBlock + j;
      const __m256i value = zero ? _mm256_setzero_si256() : quantize8(x + at, n - at, inverse);
      _mm256_store_si256(reinterpret_cast<__m256i*>(lanes + j), value);
    }
    for (int j = 0; j < kBlock; ++j) {
      q[b * kBlock + j] = static_cast<int16_t>(lanes[j]);
      sum += lanes[j];
    }
    block_sums[b] = static_cast<float>(sum);
  }
}

void rope(float* head, int rotary_dim, const float* cosines, const float* sines) {
  const int half = rotary_dim / 2;
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const __m256 a = load8(head + i);
    const __m256 b = load8(head + half + i);
    const __m256 c = load8(cosines + i);
    const __m256 s = load8(sines + i);
    store8(head + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
    store8(head + half + i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
  }
  for (; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

void swiglu(const float* gate, const float* up, float* out, int n) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = n - i < kLanes ? n - i : kLanes;
    const __m256 g = lanes == kLanes ? load8(gate + i) : load_tail(gate + i, lanes);
    const __m256 u = lanes == kLanes ? load8(up + i) : load_tail(up + i, lanes);
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, exp8(_mm256_xor_ps(g, sign))));
    store_lanes(out + i, _mm256_mul_ps(silu, u), lanes);
  }
}

// gelu's tanh approximation: 0.5 * (1 + tanh(z / 2)) is 1 / (1 + exp(-z)).
void geglu(const float* gate, const float* up, float* out, int n) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = n - i < kLanes ? n - i : kLanes;
    const __m256 g = lanes == kLanes ? load8(gate + i) : load_tail(gate + i, lanes);
    const __m256 u = lanes == kLanes ? load8(up + i) : load_tail(up + i, lanes);
    const __m256 cube = _mm256_mul_ps(_mm256_mul_ps(g, g), g);
    const __m256 z = _mm256_mul_ps(_mm256_set1_ps(1.59576912f), mul_add(g, _mm256_set1_ps(0.044715f), cube));
    const __m256 gelu = _mm256_div_ps(g, _mm256_add_ps(one, exp8(_mm256_xor_ps(z, sign))));
    store_lanes(out + i, _mm256_mul_ps(gelu, u), lanes);
  }
}

void add(float* h, const float* y, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store8(h + i, _mm256_add_ps(load8(h + i), load8(y + i)));
  for (; i < n; ++i) h[i] = h[i] + y[i];
}

float log_sum_exp(const float* x, int64_t n) {
  float m = x[0];
  for (int64_t i = 1; i < n; ++i) m = m > x[i] ? m : x[i];
  const __m256 top = _mm256_set1_ps(m);
  __m256 sums = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sums = _mm256_add_ps(sums, exp8(_mm256_sub_ps(load8(x + i), top)));
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    const __m256 value = exp8(_mm256_sub_ps(load_tail(x + i, rest), top));
    sums = _mm256_add_ps(sums, _mm256_and_ps(value, _mm256_castsi256_ps(first_lanes(rest))));
  }
  return static_cast<float>(static_cast<double>(m) + log(static_cast<double>(fold8(sums))));
}

// The best of the lanes' bests: the largest, of equal ones that of the lowest index, and the largest of all others.
void fold_peak(__m256 largest, __m256 second, __m256i index, Peak* out) {
  alignas(32) float first[kLanes], others[kLanes];
  alignas(32) int32_t at[kLanes];
  _mm256_store_ps(first, largest);
  _mm256_store_ps(others, second);
  _mm256_store_si256(reinterpret_cast<__m256i*>(at), index);
  int best = 0;
  for (int lane = 1; lane < kLanes; ++lane) {
    if (first[lane] > first[best] || (first[lane] == first[best] && at[lane] < at[best])) best = lane;
  }
  float next = others[best];
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lane != best && first[lane] > next) next = first[lane];
  }
  out->largest = first[best];
  out->second = _mm256_cvtss_f32(exp8(_mm256_set1_ps(next - first[best])));
  out->index = at[best];
}

// Two passes over the row, both in the first caches: arithmetic bounds the second (some 15 cycles for eight logits).
void peak(const float* x, int64_t n, Peak* out) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  const int64_t whole = n - n % kLanes;
  const int rest = static_cast<int>(n - whole);
  const __m256 tail = rest ? _mm256_blendv_ps(lowest, load_tail(x + whole, rest), _mm256_castsi256_ps(first_lanes(rest)))
                           : lowest;
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256 largest = whole ? load8(x) : tail;
  __m256 second = lowest;
  __m256i index = lanes;
  for (int64_t i = kLanes; i < n; i += kLanes) {
    const __m256 value = i < whole ? load8(x + i) : tail;
    const __m256 more = _mm256_cmp_ps(value, largest, _CMP_GT_OQ);
    second = _mm256_max_ps(second, _mm256_min_ps(largest, value));
    largest = _mm256_max_ps(value, largest);
    const __m256i here = _mm256_add_epi32(lanes, _mm256_set1_epi32(static_cast<int>(i)));
    index = _mm256_blendv_epi8(index, here, _mm256_castps_si256(more));
  }
  fold_peak(largest, second, index, out);
  const __m256 top = _mm256_set1_ps(out->largest);
  const __m256 least = _mm256_set1_ps(-87.0f);
  __m256 total = _mm256_setzero_ps(), falls = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i < whole; i += kLanes) {
    const __m256 fall = _mm256_max_ps(least, _mm256_sub_ps(load8(x + i), top));
    const __m256 e = exp8(fall);
    total = _mm256_add_ps(total, e);
    falls = mul_add(falls, e, fall);
  }
  if (rest) {
    const __m256 valid = _mm256_castsi256_ps(first_lanes(rest));
    const __m256 fall = _mm256_max_ps(least, _mm256_sub_ps(tail, top));
    const __m256 e = exp8(fall);
    total = _mm256_add_ps(total, _mm256_and_ps(e, valid));
    falls = _mm256_add_ps(falls, _mm256_and_ps(_mm256_mul_ps(e, fall), valid));
  }
  out->total = fold8(total);
  out->falls = fold8(falls);
}

}  // namespace
}  // namespace avx2

namespace avx512 {

extern const Attention kAttention;
void matmul(const PackedMatrix* m, const Activations* a, int group_begin, int group_end, float* out,
            int64_t out_stride);

}  // namespace avx512

const Kernels kAvx2Kernels = {
    "avx2",     avx2::rms_norm, avx2::quantize_row, avx2::matmul, avx2::embed_row,
    avx2::rope, avx2::swiglu,   avx2::geglu,        avx2::add,    &avx2::kAttention,
    avx2::log_sum_exp, avx2::peak,
};

const Kernels kAvx512Kernels = {
    "avx512",   avx2::rms_norm, avx2::quantize_row, avx512::matmul, avx2::embed_row,
    avx2::rope, avx2::swiglu,   avx2::geglu,        avx2::add,      &avx512::kAttention,
    avx2::log_sum_exp, avx2::peak,
};

}  // namespace offramp
