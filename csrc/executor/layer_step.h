// One thread's part in running layers: the phases of a layer and the barriers between them.
#pragma once
#include "../kernels/kernels.h"
#include "rows.h"
#include "threads.h"
#include "workspace.h"

namespace offramp {

struct Layer {
  PackedMatrix q, k, v, o, gate, up, down;
  const float* attn_norm;
  const float* mlp_norm;
};

struct RopeTable {
  const float* cosines;  // [positions][rotary_dim / 2]
  const float* sines;
  int positions;
};

// What all threads of a call share.
struct CallContext {
  const Shape& shape;
  const Kernels& kernels;
  const RopeTable& rope;
  Workspace& work;
  int threads;
};

class LayerStep {
 public:
  LayerStep(const CallContext& context, int thread);

  // h [rows][hidden] becomes the state after the layer. Five barriers for few rows, nine for many,
  // two more for a long context.
  void run(float* h, const RowsView& rows, const Layer& layer, const KvLayer& kv);

  // K and V of the layer from h alone.
  void fill(const float* h, const RowsView& rows, const Layer& layer, const KvLayer& kv);

  // Norm and quantized form of the rows, ready for products on return.
  Activations normalize(const float* h, const float* norm, int rows);

  // The thread's pieces of out = m x input; `out_stride` floats a row.
  void head(const PackedMatrix& m, const Activations& input, float* out, int64_t out_stride);

  // The next groups of the head's outputs for this thread; false when there are none left.
  bool take_head(const PackedMatrix& m, Range& groups);

 private:
  void barrier() { pool_.barrier(); }
  // The next piece of a phase's work; threads share the counter.
  int take(Phase phase, int piece = 1) { return work_.next[phase].fetch_add(piece); }
  // Sets a phase's counter back; only where a barrier lies between here and both its last and its next use.
  void rewind(Phase phase);
  Activations quantize(const float* x, int features, int rows);
  Activations view(const InputBuffer& buffer, const float* values, int features, int rows) const;
  void project_heads(const RowsView& rows, const Layer& layer, const KvLayer& kv, const Activations& input, bool with_q);
  void finish_heads(const RowsView& rows, const KvLayer& kv, char kind, Range heads);
  AttendTask task_of(const RowsView& rows, const AttentionItem& item);
  void attend(const RowsView& rows, const KvLayer& kv);
  void add_product(const PackedMatrix& m, const Activations& input, Phase phase, float* h);
  void gate_up(const Layer& layer, const Activations& input);

  const Shape& shape_;
  const Kernels& kernels_;
  const RopeTable& rope_;
  Workspace& work_;
  ThreadPool& pool_;
  int threads_;
  int thread_;
};

// Splits the rows into items of attention: tiles of one sequence's rows times heads.
void plan_attention(const Shape& shape, const RowsView& rows, int threads, Workspace& work);

}  // namespace offramp
