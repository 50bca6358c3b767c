// From one row of logits to a token: top-k, top-p, min-p, then the keyed exponential race.
//
// The result is defined by offramp/sample/ (numpy), token for token: exp and log are fixed sequences of f64
// operations, probabilities are summed as integers, so order and vector width don't matter. Plain C types only;
// each instruction-set file stands alone (no std:: templates, no inline functions from here).
#pragma once
#include <cstdint>

namespace offramp::sampling {

constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2High = 0.693147180369123816490;
constexpr double kLn2Low = 1.90821492927058770002e-10;
constexpr double kExpMin = -708.0;
constexpr double kExpTerms[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                                1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                                1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        1.0 / 2.0,
                                1.0,                1.0};
constexpr double kWeightOne = 17592186044416.0;  // 2^44, the weight of the likeliest token

constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxStep0 = 0x9E3779B9u;
constexpr uint32_t kPhiloxStep1 = 0xBB67AE85u;
constexpr uint32_t kTokenDraw = 0;  // purpose word of the counter

constexpr double kSumError = 1e-4;  // of sum_below, relative; about 2e-5 is reached

// Bounds of the race's cheap test, in log2 units: its rounding errors, and the smallest -log(u).
constexpr float kRaceSlack = 1e-3f;
constexpr float kNoiseFloor = -53.5f;

struct NoiseKey {
  uint64_t seed;
  uint32_t position;
  uint32_t choice;
};

// Tokens still in play, by rising id. Without `ids`, token i has id i.
struct Candidates {
  const float* logits;
  const int32_t* ids;
  int32_t count;
};

// The row's fixed scale: a token's exponent is (logit - largest) / temperature.
struct Scale {
  float largest;
  double temperature;  // > 0
};

struct Leader {
  double score;
  int32_t id;
};

struct Kernels {
  const char* name;
  float (*largest)(const float* logits, int32_t count);  // NaN if any is
  // weights[i] = rint(exp(exponent) * 2^44)
  void (*weigh)(const float* logits, int32_t count, const Scale* scale, uint64_t* weights);
  // The sum of exp(exponent) over the logits below `floor`, within kSumError of it and 2^-60.
  double (*sum_below)(const float* logits, int32_t count, float floor, const Scale* scale);
  // Copies the candidates whose logit is at least `floor`, in order, and returns their number. May work in place.
  int32_t (*keep_from)(const Candidates* candidates, float floor, float* logits, int32_t* ids);
  // Lets every candidate challenge the leader, whose score must already be that of a candidate.
  void (*race)(const Candidates* candidates, const Scale* scale, const NoiseKey* key, Leader* leader);
};

extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;

struct Filters {
  int32_t top_k;  // 0: off
  double top_p;   // 1: off
  double min_p;   // 0: off
};

// The drawn id, or -1 if the row holds no finite logit, a NaN or +inf.
int32_t draw(const Kernels& kernels, const float* logits, int32_t vocab, double temperature, const Filters& filters,
             const NoiseKey& key);

double exp_f64(double x);  // x <= 0
double exponent(float logit, const Scale* scale);
uint64_t weight(float logit, const Scale* scale);
// factor / temperature, at most 1e38, so that 0 times it is 0.
float per_temperature(double factor, const Scale* scale);
// The exact score of one token; it takes the lead if higher, or equal with a lower id.
void challenge(int32_t id, float logit, const Scale* scale, const NoiseKey* key, Leader* leader);
// The portable loops from `begin` on: what is left over after whole vectors.
void race_from(int32_t begin, const Candidates* candidates, const Scale* scale, const NoiseKey* key, Leader* leader);
int32_t copy_from(int32_t begin, const Candidates* candidates, float floor, float* logits, int32_t* ids);

}  // namespace offramp::sampling
