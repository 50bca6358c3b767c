// Top-k and top-p are one question: sorted by (logit falling, id rising), where do the summed weights reach a target?
// A weight is 1 for top-k and an integer probability for top-p. Nothing is sorted: a histogram by distance to the largest
// logit finds the bucket that holds the answer, three radix passes over that bucket alone find the token. Integer sums
// are exact in any order, so the answer is that of a full sort. Bound by the passes over the vocabulary.
#include "filters.h"

#include <cmath>
#include <cstring>

namespace offramp::sampling {
namespace {

constexpr uint32_t kBuckets = 2048;
constexpr int32_t kChunk = 1024;  // tokens weighed at a time, on the stack

struct Member {
  uint32_t key;  // rises as the logit falls
  int32_t index;
  uint64_t weight;
};

struct Cutoff {
  float logit;
  int32_t index;
};

struct Place {
  uint32_t bucket;
  uint64_t target;  // what is left to reach within the bucket
};

uint32_t falling_key(float logit) {
  const float positive_zero = logit + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &positive_zero, 4);
  return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

// Distance to the largest logit in steps; the last bucket is open.
uint32_t bucket_of(float logit, float largest, float steps) {
  const float distance = (largest - logit) * steps;
  return distance < static_cast<float>(kBuckets - 1) ? static_cast<uint32_t>(distance) : kBuckets - 1;
}

Place locate(const std::vector<uint64_t>& histogram, uint64_t target) {
  uint32_t bucket = 0;
  while (histogram[bucket] < target) target -= histogram[bucket++];
  return {bucket, target};
}

// Members all of one bucket, in list order; target is within their sum. Leaves the order intact from pass to pass.
int32_t find(std::vector<Member>& members, uint64_t target) {
  for (const int shift : {22, 11, 0}) {
    const auto digit = [shift](uint32_t key) { return (key >> shift) % kBuckets; };
    std::vector<uint64_t> histogram(kBuckets);
    for (const Member& m : members) histogram[digit(m.key)] += m.weight;
    const Place place = locate(histogram, target);
    target = place.target;
    size_t kept = 0;
    for (const Member& m : members) {
      if (digit(m.key) == place.bucket) members[kept++] = m;
    }
    members.resize(kept);
  }
  size_t i = 0;
  while (members[i].weight < target) target -= members[i++].weight;
  return members[i].index;
}

template <typename WeightOf>
Cutoff cutoff(const Candidates& list, float largest, float steps, Place place, WeightOf weight_of) {
  std::vector<Member> members;
  for (int32_t i = 0; i < list.count; ++i) {
    const float logit = list.logits[i];
    if (bucket_of(logit, largest, steps) == place.bucket) members.push_back({falling_key(logit), i, weight_of(logit)});
  }
  const int32_t index = find(members, place.target);
  return {list.logits[index], index};
}

void keep_to(Survivors& survivors, Cutoff last) {
  survivors.keep([last](int32_t i, float logit) { return logit > last.logit || (logit == last.logit && i <= last.index); });
}

}  // namespace

void keep_top_k(Survivors& survivors, const Scale& scale, int32_t k) {
  const Candidates& list = survivors.view();
  if (k <= 0 || k >= list.count) return;
  const float steps = 64.0f;  // buckets of 1/64, down to 32 below the largest logit
  std::vector<uint64_t> histogram(kBuckets);
  for (int32_t i = 0; i < list.count; ++i) ++histogram[bucket_of(list.logits[i], scale.largest, steps)];
  const Place place = locate(histogram, static_cast<uint64_t>(k));
  keep_to(survivors, cutoff(list, scale.largest, steps, place, [](float) { return uint64_t{1}; }));
}

void keep_top_p(Survivors& survivors, const Kernels& kernels, const Scale& scale, double top_p) {
  if (top_p >= 1.0) return;
  const Candidates& list = survivors.view();
  const float steps = per_temperature(64.0, &scale);  // weights are 0 beyond 31 temperatures
  std::vector<uint64_t> histogram(kBuckets);
  uint64_t total = 0;
  uint64_t weights[kChunk];
  for (int32_t start = 0; start < list.count; start += kChunk) {
    const int32_t count = list.count - start < kChunk ? list.count - start : kChunk;
    const float* logits = list.logits + start;
    kernels.weigh(logits, count, &scale, weights);
    for (int32_t i = 0; i < count; ++i) {
      histogram[bucket_of(logits[i], scale.largest, steps)] += weights[i];
      total += weights[i];
    }
  }
  const uint64_t wanted = static_cast<uint64_t>(std::ceil(top_p * static_cast<double>(total)));
  const uint64_t target = wanted < 1 ? 1 : wanted > total ? total : wanted;
  const auto weight_of = [&scale](float logit) { return weight(logit, &scale); };
  keep_to(survivors, cutoff(list, scale.largest, steps, locate(histogram, target), weight_of));
}

void keep_min_p(Survivors& survivors, const Scale& scale, double min_p) {
  if (min_p <= 0.0) return;
  // Most tokens fall short by far: those more than a little below log(min_p) are not worth an exp.
  const double floor = scale.largest + scale.temperature * (std::log(min_p) * 1.001 - 0.001);
  survivors.keep([&scale, min_p, floor](int32_t, float logit) {
    return static_cast<double>(logit) >= floor && exp_f64(exponent(logit, &scale)) >= min_p;
  });
}

}  // namespace offramp::sampling
