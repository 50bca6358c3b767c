// The step of a side layer in one parallel region: from tokens and states to the likeliest tokens behind them.
//
// Apart, its parts are calls of some 30 to 150 us each on two threads, bound by the bytes of their matrices.
#include <cstring>
#include <optional>
#include <stdexcept>

#include "../kernels/portable.h"
#include "executor.h"
#include "top.h"

namespace offramp {

int Executor::add_join(const Join& join) {
  work_.widen_inputs(join.matrix.in);
  joins_.push_back(join);
  return static_cast<int>(joins_.size()) - 1;
}

int Executor::join_parts(int join) const {
  if (join < 0 || join >= static_cast<int>(joins_.size())) throw std::invalid_argument("no such join");
  if (layers_.empty()) throw std::invalid_argument("no layer behind the join yet");
  return joins_[join].parts();
}

void Executor::run_joined(int join, const RowsView& rows, const float* states, const int32_t* chosen, int num_chosen,
                          float* h, int head, int k, int32_t* places, float* shares) {
  if (rows.rows == 0) return;
  const bool all = num_chosen == rows.rows;
  const int64_t hidden = shape_.hidden;
  if (!all) joined_.resize(rows.rows * hidden);
  float* whole = all ? h : joined_.data();
  std::vector<float> log_sum_exp(k > 0 ? num_chosen : 0);
  std::optional<TopSearch> search;
  if (k > 0) search.emplace(kernels_, heads_[head].matrix, num_chosen, k, active_);
  plan_attention(shape_, rows, active_, work_);
  parallel(rows.rows, [&](LayerStep& step, int thread) {
    step.join(joins_[join], embedding_, rows, states, whole);
    if (num_chosen == 0) {
      step.fill(whole, rows, layers_[0], kv_[0]);
      return;
    }
    step.run(whole, rows, layers_[0], kv_[0]);
    const Range mine = all ? Range{0, 0} : share(num_chosen, thread, active_);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      std::memcpy(h + i * hidden, whole + chosen[i] * hidden, static_cast<size_t>(hidden) * sizeof(float));
    }
    if (!search) return;
    if (!all) ThreadPool::instance().barrier();
    search->run(step, thread, step.head_input(heads_[head], h, num_chosen), places, shares, log_sum_exp.data());
  });
  for (int64_t i = 0; i < static_cast<int64_t>(num_chosen) * k; ++i) {
    shares[i] = portable::exp_f32(shares[i] - log_sum_exp[i / k]);
  }
}

}  // namespace offramp
