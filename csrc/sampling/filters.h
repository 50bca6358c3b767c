// Which tokens stay in play. A list shrinks from filter to filter and keeps its order by rising id.
#pragma once
#include <cstdint>
#include <vector>

#include "sampling.h"

namespace offramp::sampling {

class Survivors {
 public:
  Survivors(const float* logits, int32_t vocab) : view_{logits, nullptr, 0, vocab} {}
  Survivors(const Survivors&) = delete;

  const Candidates& view() const { return view_; }

  // Keeps the candidates whose index and logit satisfy `stays`.
  template <typename Stays>
  void keep(Stays stays) {
    std::vector<float> logits;
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < view_.count; ++i) {
      if (!stays(i, view_.logits[i])) continue;
      logits.push_back(view_.logits[i]);
      ids.push_back(view_.ids ? view_.ids[i] : i);
    }
    logits_.swap(logits);
    ids_.swap(ids);
    view_ = {logits_.data(), ids_.data(), 0, static_cast<int32_t>(ids_.size())};
  }

 private:
  std::vector<float> logits_;
  std::vector<int32_t> ids_;
  Candidates view_;
};

void keep_top_k(Survivors& survivors, const Scale& scale, int32_t k);
void keep_top_p(Survivors& survivors, const Kernels& kernels, const Scale& scale, double top_p);
void keep_min_p(Survivors& survivors, const Scale& scale, double min_p);

}  // namespace offramp::sampling
