// Runs layer ranges over ragged rows with all threads inside one call, and owns the K/V memory.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "../kernels/kernels.h"
#include "threads.h"

namespace offramp {

struct Shape {
  int hidden;
  int intermediate;
  int heads;
  int kv_heads;
  int head_dim;
  int rotary_dim;
  int vocab;
  float norm_eps;
};

struct Layer {
  PackedMatrix q, k, v, o, gate, up, down;
  const float* attn_norm;
  const float* mlp_norm;
};

// The arrays of offramp.core.Rows.
struct RowsView {
  int rows;
  int sequences;
  const int32_t* tokens;
  const int32_t* sequence;
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* prefix_lens;
  const int32_t* ancestor_slots;
  const int32_t* ancestor_starts;
  const int32_t* page_ids;
  const int32_t* page_starts;

  const int32_t* pages_of(int row) const { return page_ids + page_starts[sequence[row]]; }
};

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
  Executor(const Shape& shape, bool kv_f16, int num_pages, int threads, const Kernels& kernels);

  void set_embedding(const PackedMatrix& embedding) { embedding_ = embedding; }
  void set_head(const PackedMatrix& head, const float* final_norm);
  void add_layer(const Layer& layer);
  void set_rope(const float* cosines, const float* sines, int positions);

  int num_layers() const { return static_cast<int>(layers_.size()); }
  const Shape& shape() const { return shape_; }
  const char* kernel_name() const { return kernels_.name; }

  void embed(const RowsView& rows, float* h);
  void run_layers(float* h, const RowsView& rows, int start, int stop);
  void fill(const float* h, const RowsView& rows, int start, int stop);
  // out [rows][vocab], or [rows][ids] for the chosen ids.
  void logits(const float* h, int rows, const int32_t* ids, int64_t num_ids, float* out);
  void top(const float* h, int rows, int k, int32_t* ids, float* logits, float* log_sum_exp);
  void copy_slots(const int32_t* source, const int32_t* target, int64_t n);

  // Throws std::invalid_argument when the rows point outside the model, the rope table or the K/V memory.
  void check(const RowsView& rows) const;
  void check_layers(int start, int stop) const;

 private:
  struct Workspace;
  struct AttentionItem;

  void normalize(int thread, const float* h, const float* norm, int rows);
  void quantize(int thread, const float* x, int features, int rows);
  void product(int thread, const PackedMatrix& m, int rows, const float* values, int64_t stride, float* out,
               int64_t out_stride);
  void write_kv(int thread, const KvLayer& kv, const RowsView& rows, float* q);
  void plan_attention(const RowsView& rows);
  void attention(int thread, const KvLayer& kv, const RowsView& rows);
  void attention_block(int thread, float* h, const RowsView& rows, const Layer& layer, const KvLayer& kv);
  void mlp_block(int thread, float* h, int rows, const Layer& layer);
  void prepare(int rows);
  void head_logits(int thread, const float* h, int rows, float* out);

  Shape shape_;
  bool kv_f16_;
  int num_pages_;
  int threads_;
  const Kernels& kernels_;
  std::vector<Layer> layers_;
  std::vector<KvLayer> kv_;
  std::vector<std::unique_ptr<LazyMemory>> memory_;
  PackedMatrix embedding_{};
  PackedMatrix head_{};
  const float* final_norm_ = nullptr;
  const float* cosines_ = nullptr;
  const float* sines_ = nullptr;
  int rope_positions_ = 0;
  std::unique_ptr<Workspace> work_;

 public:
  ~Executor();
};

}  // namespace offramp
