// The largest outputs of a head, found by all threads of a call while they multiply.
#pragma once
#include <cstdint>
#include <vector>

#include "layer_step.h"

namespace offramp {

// The ids seen so far with the largest logits, as a heap with the worst of them on top.
class Best {
 public:
  Best(int32_t* ids, int most) : ids_(ids), most_(most) {}

  void scan(const float* row, int begin, int end);
  int held() const { return held_; }

 private:
  int32_t* ids_;
  int most_;
  int held_ = 0;
};

class TopSearch {
 public:
  // The k best of each of `rows` rows, ties to the lowest id, and the rows' log-sum-exps. Allocates all it needs.
  TopSearch(const Kernels& kernels, const PackedMatrix& matrix, int rows, int k, int threads);

  // A thread's part inside a region of `threads` threads; one barrier. ids and logits [rows][k], log_sum_exp [rows].
  void run(LayerStep& step, int thread, const Activations& input, int32_t* ids, float* logits, float* log_sum_exp);

 private:
  void settle(int64_t row, int32_t* order, int32_t* ids, float* logits) const;

  const Kernels& kernels_;
  const PackedMatrix& matrix_;
  int rows_, k_, threads_;
  int kept_;  // ids a thread holds of a row; 0: too many, all are sorted in the end
  std::vector<float> all_;  // [rows][outputs]
  std::vector<int32_t> held_;
  std::vector<Best> best_;      // [threads][rows]
  std::vector<int32_t> order_;  // [threads][ids to sort]
};

}  // namespace offramp
