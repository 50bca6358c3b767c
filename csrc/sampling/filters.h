// Which tokens stay in play. The list shrinks from filter to filter and keeps its order by rising id.
#pragma once
#include <cstdint>
#include <memory>

#include "sampling.h"

namespace offramp::sampling {

class Survivors {
 public:
  Survivors(const Kernels& kernels, const float* logits, int32_t vocab)
      : kernels_(kernels), view_{logits, nullptr, vocab} {}

  const Kernels& kernels() const { return kernels_; }
  const Candidates& view() const { return view_; }

  // Keeps what reaches `floor`: the one pass over all tokens that moves them into memory of our own.
  void keep_from(float floor) {
    if (!logits_) {
      logits_ = std::make_unique_for_overwrite<float[]>(view_.count);
      ids_ = std::make_unique_for_overwrite<int32_t[]>(view_.count);
    }
    const int32_t count = kernels_.keep_from(&view_, floor, logits_.get(), ids_.get());
    view_ = {logits_.get(), ids_.get(), count};
  }

  // Undoes what was kept since `view`, which must be the first: the logits it points to are the caller's.
  void back_to(const Candidates& view) { view_ = view; }

  // Keeps what `stays(index, logit)`; only after keep_from.
  template <typename Stays>
  void keep(Stays stays) {
    int32_t count = 0;
    for (int32_t i = 0; i < view_.count; ++i) {
      const bool stay = stays(i, logits_[i]);
      logits_[count] = logits_[i];
      ids_[count] = ids_[i];
      count += stay;
    }
    view_.count = count;
  }

 private:
  const Kernels& kernels_;
  std::unique_ptr<float[]> logits_;
  std::unique_ptr<int32_t[]> ids_;
  Candidates view_;
};

void keep_top_k(Survivors& survivors, const Scale& scale, int32_t k);
void keep_top_p(Survivors& survivors, const Scale& scale, double top_p);
void keep_min_p(Survivors& survivors, const Scale& scale, double min_p);

}  // namespace offramp::sampling
