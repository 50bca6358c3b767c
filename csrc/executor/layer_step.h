// One thread's part in running layers: the phases of a layer and the barriers between them.
#pragma once
#include <vector>

#include "../kernels/kernels.h"
#include "rows.h"
#include "threads.h"
#include "workspace.h"

namespace offramp {

struct Layer {
  PackedMatrix q, k, v, o, gate, up, down;
  const float* attn_norm;
  const float* mlp_norm;
  // Null where the model has none.
  const float *q_bias, *k_bias, *v_bias;        // of all heads
  const float *q_norm, *k_norm;                 // of one head, the same for each
  const float *post_attn_norm, *post_mlp_norm;  // of what attention and MLP give
  int rope;                                     // index of its rope table, or -1: it doesn't rotate
  int window;                                   // positions that a row sees, its own included, or kNoWindow
};

// Logits of hidden states: the rows of `matrix` times the norm of h + up x silu(down x norm(h)), or of h.
struct Head {
  PackedMatrix matrix;
  const float* norm;
  const float* input_norm;  // null without an adapter, and then down and up are unused
  PackedMatrix down, up;
};

// The input of a side layer: `matrix` times the norm of the units of a token's embedding and of states, side by side.
struct Join {
  PackedMatrix matrix;  // [hidden][parts * hidden]
  const float* norm;    // [parts * hidden]
  int parts() const { return matrix.in / matrix.out; }
};

struct RopeTable {
  const float* cosines;  // [positions][rotary_dim / 2]
  const float* sines;
  int positions;
  int rotary_dim;
};

// What all threads of a call share.
struct CallContext {
  const Shape& shape;
  const Kernels& kernels;
  const std::vector<RopeTable>& ropes;
  Workspace& work;
  int threads;
};

class LayerStep {
 public:
  LayerStep(const CallContext& context, int thread);

  // h [rows][hidden] becomes the state after the layer. Five barriers for few rows, nine for many,
  // two more for a long context and two for each norm after a product.
  void run(float* h, const RowsView& rows, const Layer& layer, const KvLayer& kv);

  // K and V of the layer from h alone.
  void fill(const float* h, const RowsView& rows, const Layer& layer, const KvLayer& kv);

  // h [rows][hidden] of the rows' tokens and states [rows][parts - 1][hidden], complete on return.
  void join(const Join& join, const PackedMatrix& embedding, const RowsView& rows, const float* states, float* h);

  // What the head's matrix is multiplied by, ready for products on return.
  Activations head_input(const Head& head, const float* h, int rows);

  // The thread's pieces of out = m x input; `out_stride` floats a row.
  void head(const PackedMatrix& m, const Activations& input, float* out, int64_t out_stride);

  // The next groups of the head's outputs for this thread; false when there are none left.
  bool take_head(const PackedMatrix& m, Range& groups);

 private:
  void barrier() { pool_.barrier(); }
  // The next piece of a phase's work; threads share the counter.
  int take(Phase phase, int piece = 1) { return work_.next[phase].fetch_add(piece); }
  // Groups of outputs that a thread takes at a time, of so many: few enough for each thread to come twice.
  int piece_of(int groups) const;
  // Sets a phase's counter back; only where a barrier lies between here and both its last and its next use.
  void rewind(Phase phase);
  Activations quantize(const float* x, int features, int rows);
  // Norm and quantized form of the rows, ready for products on return.
  Activations normalize(const float* h, const float* norm, int rows);
  Activations view(const InputBuffer& buffer, const float* values, int features, int rows) const;
  void project_heads(const RowsView& rows, const Layer& layer, const KvLayer& kv, const Activations& input, bool with_q);
  void finish_heads(const RowsView& rows, const Layer& layer, const KvLayer& kv, char kind, Range heads);
  AttendTask task_of(const RowsView& rows, const AttentionItem& item, int window);
  void attend(const RowsView& rows, const KvLayer& kv, int window);
  void add_product(const PackedMatrix& m, const Activations& input, Phase phase, const float* norm, float* h);
  void add_normalized(const float* norm, int rows, float* h);
  void gate_up(const Layer& layer, const Activations& input);
  void join_row(const Join& join, const PackedMatrix& embedding, int token, const float* states, float* out);
  void adapt(const Head& head, const float* h, int rows);

  const Shape& shape_;
  const Kernels& kernels_;
  const std::vector<RopeTable>& ropes_;
  Workspace& work_;
  ThreadPool& pool_;
  int threads_;
  int thread_;
};

// A token's row of the embedding, as the layers take it.
void embed_token(const Shape& shape, const Kernels& kernels, const PackedMatrix& embedding, int token, float* out);

// Splits the rows into items of attention: tiles of one sequence's rows times heads.
void plan_attention(const Shape& shape, const RowsView& rows, int threads, Workspace& work);

}  // namespace offramp
