// Runs layer ranges over ragged rows with all threads inside one call, and owns the K/V memory.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "../kernels/kernels.h"
#include "layer_step.h"
#include "rows.h"
#include "workspace.h"

namespace offramp {

// The columns of a row's scores: how sure a head is of its likeliest token, by three measures in [0, 1].
enum Score : int { kTopProbability, kMargin, kEntropy, kScores };

// The output with the largest of n >= 1 logits, the lowest of equal ones, and the scores of the row. Without a finite
// largest logit -1 and NaN.
int32_t summarize_row(const Kernels& kernels, const float* logits, int64_t n, float* scores);

// Anonymous memory that the system zeroes and commits on first touch.
class LazyMemory {
 public:
  explicit LazyMemory(size_t bytes);
  ~LazyMemory();
  LazyMemory(const LazyMemory&) = delete;
  LazyMemory& operator=(const LazyMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

class Executor {
 public:
  // `layers` of the layers to come are the model's; those behind them are side layers.
  Executor(const Shape& shape, int layers, bool kv_f16, int num_pages, int threads, const Kernels& kernels);

  void set_embedding(const PackedMatrix& embedding) { embedding_ = embedding; }
  // The model's own head, number 0.
  void set_head(const PackedMatrix& matrix, const float* final_norm);
  // The caller keeps what it points at. Returns the head's number.
  int add_head(const Head& head);
  void add_layer(const Layer& layer);
  // Tables have indices in ascending order, without gaps; all of them reach as far before rows are run.
  void set_rope(int index, const RopeTable& table);

  // How many of its threads the next calls use; the bits don't depend on it.
  void use_threads(int threads) { active_ = threads; }
  int max_threads() const { return threads_; }

  int num_ropes() const { return static_cast<int>(ropes_.size()); }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  const Shape& shape() const { return shape_; }
  const char* kernel_name() const { return kernels_.name; }

  void embed(const RowsView& rows, float* h);
  void run_layers(float* h, const RowsView& rows, int start, int stop);
  void fill(const float* h, const RowsView& rows, int start, int stop);
  // out [rows][outputs], or [rows][ids] for the chosen outputs of the head.
  void logits(int head, const float* h, int rows, const int32_t* ids, int64_t num_ids, float* out);
  // logits [rows][outputs], and of each row the output with the largest one (or -1) and scores [rows][kScores].
  void summarize(int head, const float* h, int rows, float* logits, int32_t* best, float* scores);
  void top(int head, const float* h, int rows, int k, int32_t* ids, float* logits, float* log_sum_exp);
  // A side layer's input; the caller keeps what it points at. Returns the join's number.
  int add_join(const Join& join);
  // The first layer, of inputs joined from the rows' tokens and states [rows][parts - 1][hidden]: h [chosen][hidden] of
  // the rows that are chosen, rising; of none, K and V alone. For k > 0 also the places of h's likeliest tokens among
  // those of the head, and their shares, [chosen][k].
  void run_joined(int join, const RowsView& rows, const float* states, const int32_t* chosen, int num_chosen, float* h,
                  int head, int k, int32_t* places, float* shares);
  void copy_slots(const int32_t* source, const int32_t* target, int64_t n);

  // Throws std::invalid_argument when the rows point outside the model, the rope table or the K/V memory.
  void check(const RowsView& rows) const;
  void check_layers(int start, int stop) const;
  void check_slots(const int32_t* slots, int64_t n) const;
  // The outputs of a head; throws std::invalid_argument when there is no such head.
  int head_outputs(int head) const;
  // The parts of a join; throws std::invalid_argument when there is no such join, or no layer behind it.
  int join_parts(int join) const;

 private:
  // Runs part(step, thread) on every thread, with room for `rows` rows in the workspace.
  template <typename Part>
  void parallel(int rows, const Part& part) {
    work_.reserve(shape_, rows);
    for (auto& next : work_.next) next.store(0);
    const CallContext context = {shape_, kernels_, ropes_, work_, active_};
    ThreadPool::instance().run(active_, [&](int thread) {
      LayerStep step(context, thread);
      part(step, thread);
    });
  }

  Shape shape_;
  int model_layers_;
  bool kv_f16_;
  int num_pages_;
  int threads_;  // most that a call may use
  int active_;
  const Kernels& kernels_;
  std::vector<Layer> layers_;
  std::vector<KvLayer> kv_;
  std::vector<std::unique_ptr<LazyMemory>> memory_;
  PackedMatrix embedding_{};
  std::vector<Head> heads_ = {Head{}};  // the model's own first
  std::vector<Join> joins_;
  std::vector<RopeTable> ropes_;
  Workspace work_;
  std::vector<float> joined_;  // what the layer behind a join makes of all rows, while a call runs
};

}  // namespace offramp
