// The draw's loops over the vocabulary, eight tokens at a time. Bound by arithmetic, mostly Philox's multiplications.
// Compiled with -mavx2; anything exact or rare is a call into portable.cpp.
#include <immintrin.h>

#include "sampling.h"

namespace offramp::sampling {
namespace {

float largest(const float* logits, int32_t count) {
  if (count < 8) return kPortableKernels.largest(logits, count);
  __m256 best = _mm256_loadu_ps(logits + count - 8);
  __m256 broken = _mm256_cmp_ps(best, best, _CMP_UNORD_Q);
  for (int32_t i = 0; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_loadu_ps(logits + i);
    best = _mm256_max_ps(best, values);
    broken = _mm256_or_ps(broken, _mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  }
  best = _mm256_or_ps(best, broken);  // all bits set is a NaN
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, best);
  return kPortableKernels.largest(lanes, 8);
}

__m256d exp4(__m256d x) {
  const __m256d lowest = _mm256_set1_pd(kExpMin);
  const __m256d clamped = _mm256_max_pd(x, lowest);
  const __m256d n = _mm256_round_pd(_mm256_mul_pd(clamped, _mm256_set1_pd(kLog2E)), _MM_FROUND_TO_NEAREST_INT);
  const __m256d high = _mm256_sub_pd(clamped, _mm256_mul_pd(n, _mm256_set1_pd(kLn2High)));
  const __m256d r = _mm256_sub_pd(high, _mm256_mul_pd(n, _mm256_set1_pd(kLn2Low)));
  __m256d p = _mm256_set1_pd(kExpTerms[0]);
  for (int i = 1; i < 14; ++i) p = _mm256_add_pd(_mm256_mul_pd(p, r), _mm256_set1_pd(kExpTerms[i]));
  const __m256i biased = _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(n)), _mm256_set1_epi64x(1023));
  const __m256d value = _mm256_mul_pd(p, _mm256_castsi256_pd(_mm256_slli_epi64(biased, 52)));
  return _mm256_andnot_pd(_mm256_cmp_pd(x, lowest, _CMP_LT_OQ), value);
}

// Adding 2^52 rounds to an integer, to even, and leaves it in the low bits.
void weigh(const float* logits, int32_t count, const Scale* scale, uint64_t* weights) {
  const __m256d top = _mm256_set1_pd(scale->largest);
  const __m256d temperature = _mm256_set1_pd(scale->temperature);
  const __m256d magic = _mm256_set1_pd(4503599627370496.0);
  int32_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m256d centred = _mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(logits + i)), top);
    const __m256d e = exp4(_mm256_div_pd(centred, temperature));
    const __m256d rounded = _mm256_add_pd(_mm256_mul_pd(e, _mm256_set1_pd(kWeightOne)), magic);
    const __m256i bits = _mm256_xor_si256(_mm256_castpd_si256(rounded), _mm256_castpd_si256(magic));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + i), bits);
  }
  kPortableKernels.weigh(logits + i, count - i, scale, weights + i);
}

// 2^y for y <= 0, to 1e-5 where it matters (y > -60); 2^-126 below that exponent.
__m256 exp2_coarse(__m256 y) {
  const __m256 clamped = _mm256_max_ps(y, _mm256_set1_ps(-126.0f));
  const __m256 n = _mm256_round_ps(clamped, _MM_FROUND_TO_NEAREST_INT);
  const __m256 f = _mm256_sub_ps(clamped, n);  // in [-1/2, 1/2], where Taylor's terms of 2^f suffice
  constexpr float kTerms[] = {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f};
  __m256 p = _mm256_set1_ps(kTerms[0]);
  for (int i = 1; i < 6; ++i) p = _mm256_add_ps(_mm256_mul_ps(p, f), _mm256_set1_ps(kTerms[i]));
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23)));
}

// In f32, but for the sums of chunks: a hundred additions a lane, 1e-5 of rounding at most.
double sum_below(const float* logits, int32_t count, float floor, const Scale* scale) {
  constexpr int32_t kChunk = 1024;
  const __m256 top = _mm256_set1_ps(scale->largest);
  const __m256 slope = _mm256_set1_ps(per_temperature(kLog2E, scale));
  const int32_t whole = count - count % 8;
  double sum = kPortableKernels.sum_below(logits + whole, count - whole, floor, scale);
  for (int32_t start = 0; start < whole; start += kChunk) {
    const int32_t end = start + kChunk < whole ? start + kChunk : whole;
    __m256 total = _mm256_setzero_ps();
    for (int32_t i = start; i < end; i += 8) {
      const __m256 values = _mm256_loadu_ps(logits + i);
      const __m256 e = exp2_coarse(_mm256_mul_ps(_mm256_sub_ps(values, top), slope));
      total = _mm256_add_ps(total, _mm256_and_ps(e, _mm256_cmp_ps(values, _mm256_set1_ps(floor), _CMP_LT_OQ)));
    }
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, total);
    for (const float lane : lanes) sum += static_cast<double>(lane);
  }
  return sum;
}

__m256i ids_at(const Candidates* candidates, int32_t i) {
  if (candidates->ids) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(candidates->ids + i));
  return _mm256_add_epi32(_mm256_set1_epi32(i), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

int32_t keep_from(const Candidates* candidates, float floor, float* logits, int32_t* ids) {
  int32_t kept = 0;
  int32_t i = 0;
  for (; i + 8 <= candidates->count; i += 8) {
    const __m256 values = _mm256_loadu_ps(candidates->logits + i);
    int mask = _mm256_movemask_ps(_mm256_cmp_ps(values, _mm256_set1_ps(floor), _CMP_GE_OQ));
    if (mask == 0) continue;
    alignas(32) int32_t lane_ids[8];
    alignas(32) float lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane_ids), ids_at(candidates, i));
    _mm256_store_ps(lanes, values);
    for (; mask != 0; mask &= mask - 1) {
      const int lane = __builtin_ctz(static_cast<unsigned>(mask));
      ids[kept] = lane_ids[lane];
      logits[kept++] = lanes[lane];
    }
  }
  return kept + copy_from(i, candidates, floor, logits + kept, ids + kept);
}

struct Product {
  __m256i high, low;
};

Product multiply(__m256i x, __m256i multiplier) {
  const __m256i even = _mm256_mul_epu32(x, multiplier);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), multiplier);
  return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA),
          _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA)};
}

// The first word of Philox4x32-10 for eight token ids.
__m256i philox8(__m256i ids, const NoiseKey* key) {
  const __m256i multiplier0 = _mm256_set1_epi32(static_cast<int>(kPhiloxMultiplier0));
  const __m256i multiplier1 = _mm256_set1_epi32(static_cast<int>(kPhiloxMultiplier1));
  __m256i c0 = ids;
  __m256i c1 = _mm256_set1_epi32(static_cast<int>(key->position));
  __m256i c2 = _mm256_set1_epi32(static_cast<int>(key->choice));
  __m256i c3 = _mm256_set1_epi32(static_cast<int>(kTokenDraw));
  uint32_t k0 = static_cast<uint32_t>(key->seed), k1 = static_cast<uint32_t>(key->seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const Product first = multiply(c0, multiplier0);
    const Product second = multiply(c2, multiplier1);
    c0 = _mm256_xor_si256(_mm256_xor_si256(second.high, c1), _mm256_set1_epi32(static_cast<int>(k0)));
    c1 = second.low;
    c2 = _mm256_xor_si256(_mm256_xor_si256(first.high, c3), _mm256_set1_epi32(static_cast<int>(k1)));
    c3 = first.low;
    k0 += kPhiloxStep0;
    k1 += kPhiloxStep1;
  }
  return c0;
}

// As noise_bound in portable.cpp.
__m256 noise_bound8(__m256i w0) {
  const __m256i halved = _mm256_srli_epi32(_mm256_xor_si256(w0, _mm256_set1_epi32(-1)), 1);
  const __m256 bits = _mm256_cvtepi32_ps(_mm256_castps_si256(_mm256_cvtepi32_ps(halved)));
  return _mm256_sub_ps(_mm256_mul_ps(bits, _mm256_set1_ps(0x1p-23f)), _mm256_set1_ps(158.0f));
}

float offset_of(const Leader* leader) { return kRaceSlack - static_cast<float>(leader->score * kLog2E); }

// race_from, eight at a time; the same necessary test, so the same winner.
void race(const Candidates* candidates, const Scale* scale, const NoiseKey* key, Leader* leader) {
  const __m256 top = _mm256_set1_ps(scale->largest);
  const __m256 slope = _mm256_set1_ps(per_temperature(kLog2E, scale));
  __m256 offset = _mm256_set1_ps(offset_of(leader));
  int32_t i = 0;
  for (; i + 8 <= candidates->count; i += 8) {
    const float* logits = candidates->logits + i;
    const __m256 limit = _mm256_add_ps(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(logits), top), slope), offset);
    const __m256 open = _mm256_cmp_ps(limit, _mm256_set1_ps(kNoiseFloor), _CMP_GE_OQ);
    if (_mm256_movemask_ps(open) == 0) continue;
    const __m256i ids = ids_at(candidates, i);
    const __m256 survives = _mm256_cmp_ps(noise_bound8(philox8(ids, key)), limit, _CMP_LE_OQ);
    int mask = _mm256_movemask_ps(_mm256_and_ps(survives, open));
    if (mask == 0) continue;
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), ids);
    for (; mask != 0; mask &= mask - 1) {
      const int lane = __builtin_ctz(static_cast<unsigned>(mask));
      challenge(lanes[lane], logits[lane], scale, key, leader);
    }
    offset = _mm256_set1_ps(offset_of(leader));
  }
  race_from(i, candidates, scale, key, leader);
}

}  // namespace

extern const Kernels kAvx2Kernels = {"avx2", largest, weigh, sum_below, keep_from, race};

}  // namespace offramp::sampling
