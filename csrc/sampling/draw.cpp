// One draw: the order of the filters, then the race among the survivors.
#include "filters.h"
#include "sampling.h"

namespace offramp::sampling {

int32_t draw(const Kernels& kernels, const float* logits, int32_t vocab, double temperature, const Filters& filters,
             const NoiseKey& key) {
  const Scale scale = {kernels.largest(logits, vocab), temperature};
  if (!(scale.largest - scale.largest == 0.0f)) return -1;
  Survivors survivors(kernels, logits, vocab);
  keep_top_k(survivors, scale, filters.top_k);
  keep_top_p(survivors, scale, filters.top_p);
  keep_min_p(survivors, scale, filters.min_p);

  const Candidates& list = survivors.view();
  int32_t best = 0;  // the likeliest token sets a score that few others can beat
  while (best < list.count && list.logits[best] != scale.largest) ++best;
  if (best == list.count) return -1;
  Leader leader = {-__builtin_inf(), vocab};
  challenge(list.ids ? list.ids[best] : best, list.logits[best], &scale, &key, &leader);
  kernels.race(&list, &scale, &key, &leader);
  return leader.id;
}

}  // namespace offramp::sampling
