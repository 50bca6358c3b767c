#include "top.h"

#include <algorithm>
#include <numeric>

namespace offramp {
namespace {

// From this many on, sorting all ids beats keeping the best ones while scanning.
constexpr int kMostKept = 256;

// A strict order of ids whatever their logits hold: larger first, ties to the lowest id, NaN last.
struct Before {
  const float* row;
  bool operator()(int32_t a, int32_t b) const {
    const bool a_is_number = row[a] == row[a];
    const bool b_is_number = row[b] == row[b];
    if (a_is_number != b_is_number) return a_is_number;
    return a_is_number && row[a] != row[b] ? row[a] > row[b] : a < b;
  }
};

}  // namespace

void Best::scan(const float* row, int begin, int end) {
  const Before before = {row};
  for (int id = begin; id < end; ++id) {
    if (held_ == most_) {
      if (row[id] < row[ids_[0]] || !before(id, ids_[0])) continue;
      std::pop_heap(ids_, ids_ + held_--, before);
    }
    ids_[held_++] = id;
    std::push_heap(ids_, ids_ + held_, before);
  }
}

TopSearch::TopSearch(const Kernels& kernels, const PackedMatrix& matrix, int rows, int k, int threads)
    : kernels_(kernels), matrix_(matrix), rows_(rows), k_(k), threads_(threads), kept_(k <= kMostKept ? k : 0) {
  all_.resize(static_cast<size_t>(rows) * matrix.out);
  held_.resize(static_cast<size_t>(threads) * rows * kept_);
  for (int64_t i = 0; i < static_cast<int64_t>(threads) * rows; ++i) best_.emplace_back(held_.data() + i * kept_, kept_);
  order_.resize(static_cast<size_t>(threads) * (kept_ ? static_cast<size_t>(threads) * kept_ : matrix.out));
}

// Few ids are kept while their logits are still in the first cache; the log-sum-exp needs its one fixed order and comes after.
void TopSearch::run(LayerStep& step, int thread, const Activations& input, int32_t* ids, float* logits,
                    float* log_sum_exp) {
  const int64_t outputs = matrix_.out;
  for (Range groups; step.take_head(matrix_, groups);) {
    kernels_.matmul(&matrix_, &input, groups.begin, groups.end, all_.data(), outputs);
    const int end = std::min(groups.end * kTile, matrix_.out);
    for (int64_t r = 0; kept_ && r < rows_; ++r) {
      best_[static_cast<int64_t>(thread) * rows_ + r].scan(all_.data() + r * outputs, groups.begin * kTile, end);
    }
  }
  ThreadPool::instance().barrier();
  const Range mine = share(rows_, thread, threads_);
  int32_t* order = order_.data() + thread * (order_.size() / threads_);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    settle(r, order, ids + r * k_, logits + r * k_);
    log_sum_exp[r] = kernels_.log_sum_exp(all_.data() + r * outputs, outputs);
  }
}

// Sorts what the threads hold of a row.
void TopSearch::settle(int64_t r, int32_t* order, int32_t* ids, float* logits) const {
  const float* row = all_.data() + r * matrix_.out;
  int32_t* end = order;
  for (int t = 0; kept_ && t < threads_; ++t) {
    const int64_t at = t * static_cast<int64_t>(rows_) + r;
    end = std::copy_n(held_.data() + at * kept_, best_[at].held(), end);
  }
  if (!kept_) std::iota(order, end = order + matrix_.out, 0);
  std::partial_sort(order, order + k_, end, Before{row});
  std::copy(order, order + k_, ids);
  for (int i = 0; i < k_; ++i) logits[i] = row[order[i]];
}

}  // namespace offramp
