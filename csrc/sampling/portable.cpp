// The exact arithmetic of the draw, scalar, and the portable kernel table.
// Bound by arithmetic, ten Philox rounds a token: 0.57 ms for 49k tokens (0.17 ms with AVX2).
#include <cmath>
#include <cstring>

#include "sampling.h"

namespace offramp::sampling {
namespace {

constexpr double kLogTerms[] = {1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0,
                                1.0 / 11.0, 1.0 / 9.0,  1.0 / 7.0,  1.0 / 5.0,  1.0 / 3.0};
constexpr int64_t kSqrtHalfBits = 0x3FE6A09E667F3BCD;

double from_bits(int64_t bits) {
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}

int64_t to_bits(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, 8);
  return bits;
}

template <int N>
double horner(const double (&terms)[N], double x) {
  double total = terms[0];
  for (int i = 1; i < N; ++i) total = total * x + terms[i];
  return total;
}

double log_f64(double x) {
  const int64_t bits = to_bits(x);
  const int64_t exponent = (bits - kSqrtHalfBits) >> 52;
  const double m = from_bits(bits - exponent * (int64_t{1} << 52));  // in [sqrt(1/2), sqrt(2))
  const double e = static_cast<double>(exponent);
  const double f = m - 1.0;
  const double s = f / (f + 2.0);
  const double z = s * s;
  const double twice = s + s;
  const double tail = twice * (z * horner(kLogTerms, z));
  return e * kLn2High + (twice + (tail + e * kLn2Low));
}

struct Words {
  uint32_t w0, w1;
};

Words philox(uint32_t id, const NoiseKey* key) {
  uint32_t c0 = id, c1 = key->position, c2 = key->choice, c3 = kTokenDraw;
  uint32_t k0 = static_cast<uint32_t>(key->seed), k1 = static_cast<uint32_t>(key->seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t first = uint64_t{kPhiloxMultiplier0} * c0;
    const uint64_t second = uint64_t{kPhiloxMultiplier1} * c2;
    c0 = static_cast<uint32_t>(second >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(second);
    c2 = static_cast<uint32_t>(first >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(first);
    k0 += kPhiloxStep0;
    k1 += kPhiloxStep1;
  }
  return {c0, c1};
}

void compete(Words words, int32_t id, float logit, const Scale* scale, Leader* leader) {
  const uint64_t k = ((uint64_t{words.w0} << 32) | words.w1) >> 12;
  const double u = static_cast<double>(2 * k + 1) * 0x1p-53;
  const double score = exponent(logit, scale) + -log_f64(-log_f64(u));
  if (score > leader->score || (score == leader->score && id < leader->id)) *leader = {score, id};
}

// A lower bound of log2(1 - u), hence of log2(-log u): the float's exponent and mantissa read as one number, which
// is at most 0.09 below the logarithm.
float noise_bound(uint32_t w0) {
  const float v = static_cast<float>(static_cast<int32_t>(~w0 >> 1));
  int32_t bits;
  std::memcpy(&bits, &v, 4);
  return static_cast<float>(bits) * 0x1p-23f - 158.0f;  // 127 and the 31 bits of v
}

float largest(const float* logits, int32_t count) {
  float best = logits[0];
  bool broken = false;
  for (int32_t i = 0; i < count; ++i) {
    best = best > logits[i] ? best : logits[i];
    broken |= logits[i] != logits[i];
  }
  return broken ? __builtin_nanf("") : best;
}

void weigh(const float* logits, int32_t count, const Scale* scale, uint64_t* weights) {
  for (int32_t i = 0; i < count; ++i) weights[i] = weight(logits[i], scale);
}

double sum_below(const float* logits, int32_t count, float floor, const Scale* scale) {
  double sum = 0.0;
  for (int32_t i = 0; i < count; ++i) sum += logits[i] < floor ? exp_f64(exponent(logits[i], scale)) : 0.0;
  return sum;
}

int32_t keep_from(const Candidates* candidates, float floor, float* logits, int32_t* ids) {
  return copy_from(0, candidates, floor, logits, ids);
}

void race(const Candidates* candidates, const Scale* scale, const NoiseKey* key, Leader* leader) {
  race_from(0, candidates, scale, key, leader);
}

}  // namespace

double exp_f64(double x) {
  const double clamped = x > kExpMin ? x : kExpMin;
  const double n = std::nearbyint(clamped * kLog2E);
  const double r = (clamped - n * kLn2High) - n * kLn2Low;
  const double power = from_bits((static_cast<int64_t>(n) + 1023) << 52);
  return x < kExpMin ? 0.0 : horner(kExpTerms, r) * power;
}

double exponent(float logit, const Scale* scale) {
  return (static_cast<double>(logit) - static_cast<double>(scale->largest)) / scale->temperature;
}

uint64_t weight(float logit, const Scale* scale) {
  return static_cast<uint64_t>(std::nearbyint(exp_f64(exponent(logit, scale)) * kWeightOne));
}

float per_temperature(double factor, const Scale* scale) {
  const double slope = factor / scale->temperature;
  return slope < 1e38 ? static_cast<float>(slope) : 1e38f;
}

void challenge(int32_t id, float logit, const Scale* scale, const NoiseKey* key, Leader* leader) {
  compete(philox(static_cast<uint32_t>(id), key), id, logit, scale, leader);
}

int32_t copy_from(int32_t begin, const Candidates* candidates, float floor, float* logits, int32_t* ids) {
  int32_t kept = 0;
  for (int32_t i = begin; i < candidates->count; ++i) {
    const float logit = candidates->logits[i];
    if (!(logit >= floor)) continue;
    ids[kept] = candidates->ids ? candidates->ids[i] : i;
    logits[kept++] = logit;
  }
  return kept;
}

// A token can win only if log(-log u) <= exponent - best. Tested cheaply with the bound above; the f64 logarithms are
// left to the few that pass, and the noise itself to those that some noise could save.
void race_from(int32_t begin, const Candidates* candidates, const Scale* scale, const NoiseKey* key, Leader* leader) {
  const float slope = per_temperature(kLog2E, scale);
  float offset = kRaceSlack - static_cast<float>(leader->score * kLog2E);
  for (int32_t i = begin; i < candidates->count; ++i) {
    const float limit = (candidates->logits[i] - scale->largest) * slope + offset;
    if (limit < kNoiseFloor) continue;
    const int32_t id = candidates->ids ? candidates->ids[i] : i;
    const Words words = philox(static_cast<uint32_t>(id), key);
    if (noise_bound(words.w0) > limit) continue;
    compete(words, id, candidates->logits[i], scale, leader);
    offset = kRaceSlack - static_cast<float>(leader->score * kLog2E);
  }
}

const Kernels kPortableKernels = {"portable", largest, weigh, sum_below, keep_from, race};

}  // namespace offramp::sampling
