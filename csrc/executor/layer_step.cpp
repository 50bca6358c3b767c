#include "layer_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace offramp {
namespace {

// Groups of 16 outputs that a thread takes at a time: 30 to 110 kB of weights, some microseconds of work.
constexpr int kPiece = 4;
// Pages and columns of V that a thread takes at a time in a long walk: 16 to 64 kB of K or V.
constexpr int kWalkPages = 8;
constexpr int kWalkColumns = 32;
// From this context on, few rows walk it in passes that the threads share; below, two more barriers cost more.
constexpr int kLongWalk = 512;
// Pages times heads times rows that it may hold scores of: 32 MiB.
constexpr int kWalkRoom = 1 << 18;

// Heads whose outputs fill whole groups, so that a thread can finish what it projected.
int heads_a_piece(int head_dim) { return kTile / std::gcd(kTile, head_dim); }

int pieces_of(int heads, int head_dim) {
  const int each = heads_a_piece(head_dim);
  return (heads + each - 1) / each;
}

}  // namespace

LayerStep::LayerStep(const CallContext& c, int thread)
    : shape_(c.shape),
      kernels_(c.kernels),
      ropes_(c.ropes),
      work_(c.work),
      pool_(ThreadPool::instance()),
      threads_(c.threads),
      thread_(thread) {}

int LayerStep::piece_of(int groups) const { return std::max(1, std::min(kPiece, groups / (2 * threads_))); }

void LayerStep::rewind(Phase phase) {
  if (thread_ == 0) work_.next[phase].store(0, std::memory_order_relaxed);
}

Activations LayerStep::view(const InputBuffer& buffer, const float* values, int features, int rows) const {
  return {values, buffer.quants.data(), buffer.scales.data(), buffer.block_sums.data(), rows, blocks_of(features), features};
}

// x [rows][features] -> its quantized form, in the thread's own buffer or in the shared one.
Activations LayerStep::quantize(const float* x, int features, int rows) {
  const bool own = rows <= kPrivateRows;
  InputBuffer& buffer = own ? work_.own[thread_] : work_.shared;
  const Range mine = own ? Range{0, rows} : share(rows, thread_, threads_);
  const int blocks = blocks_of(features);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    kernels_.quantize_row(x + r * features, features, blocks, buffer.quants.data() + r * blocks * kBlock,
                          buffer.scales.data() + r, buffer.block_sums.data() + r * blocks);
  }
  if (!own) barrier();
  return view(buffer, x, features, rows);
}

Activations LayerStep::normalize(const float* h, const float* norm, int rows) {
  const bool own = rows <= kPrivateRows;
  float* values = own ? work_.own[thread_].values.data() : work_.shared.values.data();
  const Range mine = own ? Range{0, rows} : share(rows, thread_, threads_);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    kernels_.rms_norm(h + r * shape_.hidden, norm, shape_.hidden, shape_.norm_eps, values + r * shape_.hidden);
  }
  return quantize(values, shape_.hidden, rows);
}

// Products of q (if asked for), k and v by whole heads; each is finished by the thread that computed it.
void LayerStep::project_heads(const RowsView& rows, const Layer& layer, const KvLayer& kv, const Activations& input,
                              bool with_q) {
  const int each = heads_a_piece(shape_.head_dim);
  const int q_pieces = with_q ? pieces_of(shape_.heads, shape_.head_dim) : 0;
  const int kv_pieces = pieces_of(shape_.kv_heads, shape_.head_dim);
  const int count = q_pieces + 2 * kv_pieces;
  for (int i = take(kQkv); i < count; i = take(kQkv)) {
    const char kind = i < q_pieces ? 'q' : i < q_pieces + kv_pieces ? 'k' : 'v';
    const int piece = kind == 'q' ? i : (i - q_pieces) % kv_pieces;
    const int num_heads = kind == 'q' ? shape_.heads : shape_.kv_heads;
    const Range heads = {piece * each, std::min((piece + 1) * each, num_heads)};
    const PackedMatrix& m = kind == 'q' ? layer.q : kind == 'k' ? layer.k : layer.v;
    float* out = kind == 'q' ? work_.q.data() : kind == 'k' ? work_.k.data() : work_.v.data();
    const int first = heads.begin * shape_.head_dim / kTile;
    const int last = (heads.end * shape_.head_dim + kTile - 1) / kTile;
    kernels_.matmul(&m, &input, first, last, out, static_cast<int64_t>(num_heads) * shape_.head_dim);
    finish_heads(rows, layer, kv, kind, heads);
  }
}

// Bias, norm and rope of q and k, then K and V into their slots.
void LayerStep::finish_heads(const RowsView& rows, const Layer& layer, const KvLayer& kv, char kind, Range heads) {
  const float* bias = kind == 'q' ? layer.q_bias : kind == 'k' ? layer.k_bias : layer.v_bias;
  const float* norm = kind == 'q' ? layer.q_norm : kind == 'k' ? layer.k_norm : nullptr;
  const RopeTable* rope = kind == 'v' || layer.rope < 0 ? nullptr : &ropes_[layer.rope];
  const int num_heads = kind == 'q' ? shape_.heads : shape_.kv_heads;
  float* values = kind == 'q' ? work_.q.data() : kind == 'k' ? work_.k.data() : work_.v.data();
  for (int r = 0; r < rows.rows; ++r) {
    const int64_t angles = rope ? static_cast<int64_t>(rows.positions[r]) * (rope->rotary_dim / 2) : 0;
    const int page = rows.pages_of(r)[rows.slots[r] / kPage];
    for (int head = heads.begin; head < heads.end; ++head) {
      float* x = values + (static_cast<int64_t>(r) * num_heads + head) * shape_.head_dim;
      if (bias) kernels_.add(x, bias + static_cast<int64_t>(head) * shape_.head_dim, shape_.head_dim);
      if (norm) kernels_.rms_norm(x, norm, shape_.head_dim, shape_.norm_eps, x);
      if (rope) kernels_.rope(x, rope->rotary_dim, rope->cosines + angles, rope->sines + angles);
      if (kind == 'k') kernels_.attention->store_k(&kv, page, rows.slots[r] % kPage, head, x);
      if (kind == 'v') kernels_.attention->store_v(&kv, page, rows.slots[r] % kPage, head, x);
    }
  }
}

AttendTask LayerStep::task_of(const RowsView& rows, const AttentionItem& item, int window) {
  AttendTask task;
  task.scale = shape_.attention_scale;
  task.scratch = work_.scratch.data() + static_cast<int64_t>(thread_) * work_.scratch_floats;
  task.pages = rows.pages_of(item.first_row);
  task.kv_head = item.kv_head;
  task.query_heads = item.heads;
  task.rows = item.rows;
  task.walks = work_.walks.data() + static_cast<int64_t>(item.first_row) * shape_.heads + item.first_head;
  task.walk_stride = shape_.heads;
  for (int j = 0; j < item.rows; ++j) {
    const int r = item.first_row + j;
    const int64_t at = (static_cast<int64_t>(r) * shape_.heads + item.first_head) * shape_.head_dim;
    task.q[j] = work_.q.data() + at;
    task.out[j] = work_.attended.data() + at;
    task.position[j] = rows.positions[r];
    task.first[j] = std::max(0, rows.positions[r] - window + 1);
    task.prefix_len[j] = rows.prefix_lens[r];
    task.slot[j] = rows.slots[r];
    task.ancestors[j] = rows.ancestor_slots + rows.ancestor_starts[r];
  }
  return task;
}

void LayerStep::attend(const RowsView& rows, const KvLayer& kv, int window) {
  const Attention& kernels = *kernels_.attention;
  const int count = static_cast<int>(work_.items.size());
  if (work_.walk_pages == 0) {
    for (int i = take(kAttention); i < count; i = take(kAttention)) {
      const AttendTask task = task_of(rows, work_.items[i], window);
      kernels.attend(&kv, &task);
    }
    return;
  }
  const int chunks = (work_.walk_pages + kWalkPages - 1) / kWalkPages;
  for (int i = take(kAttention); i < count * chunks; i = take(kAttention)) {
    const AttendTask task = task_of(rows, work_.items[i / chunks], window);
    const int first = i % chunks * kWalkPages;
    kernels.scores(&kv, &task, first, std::min(first + kWalkPages, work_.walk_pages));
  }
  barrier();
  for (int i = take(kWeights); i < rows.rows * shape_.heads; i = take(kWeights)) {
    const AttentionItem one = {i / shape_.heads, 1, 0, i % shape_.heads, 1};
    const AttendTask task = task_of(rows, one, window);
    kernels.weights(&task, 0, 0);
  }
  barrier();
  rewind(kWeights);
  const int columns = (kv.head_pad + kWalkColumns - 1) / kWalkColumns;
  for (int i = take(kValues); i < count * columns; i = take(kValues)) {
    const AttendTask task = task_of(rows, work_.items[i / columns], window);
    const int first = i % columns * kWalkColumns;
    kernels.values(&kv, &task, first, std::min(first + kWalkColumns, kv.head_pad));
  }
}

// h += m x input, by pieces of outputs; normalized before it is added where there is a norm.
void LayerStep::add_product(const PackedMatrix& m, const Activations& input, Phase phase, const float* norm, float* h) {
  const int groups = groups_of(m);
  const int piece = piece_of(groups);
  for (int g = take(phase, piece); g < groups; g = take(phase, piece)) {
    const int end = std::min(g + piece, groups);
    kernels_.matmul(&m, &input, g, end, work_.product.data(), m.out);
    const int first = g * kTile;
    const int width = std::min(end * kTile, m.out) - first;
    for (int64_t r = 0; !norm && r < input.rows; ++r) {
      kernels_.add(h + r * m.out + first, work_.product.data() + r * m.out + first, width);
    }
  }
  if (norm) add_normalized(norm, input.rows, h);
}

// h += norm(product): whole rows, so the product must be complete.
void LayerStep::add_normalized(const float* norm, int rows, float* h) {
  barrier();
  const Range mine = share(rows, thread_, threads_);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    float* y = work_.product.data() + r * shape_.hidden;
    kernels_.rms_norm(y, norm, shape_.hidden, shape_.norm_eps, y);
    kernels_.add(h + r * shape_.hidden, y, shape_.hidden);
  }
}

void LayerStep::gate_up(const Layer& layer, const Activations& input) {
  const int groups = groups_of(layer.gate);
  const int width = shape_.intermediate;
  const auto activate = shape_.gelu ? kernels_.geglu : kernels_.swiglu;
  for (int g = take(kGateUp, kPiece); g < groups; g = take(kGateUp, kPiece)) {
    const int end = std::min(g + kPiece, groups);
    kernels_.matmul(&layer.gate, &input, g, end, work_.gate.data(), width);
    kernels_.matmul(&layer.up, &input, g, end, work_.up.data(), width);
    const int first = g * kTile;
    const int count = std::min(end * kTile, width) - first;
    for (int64_t r = 0; r < input.rows; ++r) {
      float* gate = work_.gate.data() + r * width + first;
      activate(gate, work_.up.data() + r * width + first, gate, count);
    }
  }
}

void LayerStep::run(float* h, const RowsView& rows, const Layer& layer, const KvLayer& kv) {
  const int q_width = shape_.heads * shape_.head_dim;
  project_heads(rows, layer, kv, normalize(h, layer.attn_norm, rows.rows), true);
  barrier();
  rewind(kQkv);
  attend(rows, kv, layer.window);
  barrier();
  rewind(kAttention);
  rewind(kValues);
  add_product(layer.o, quantize(work_.attended.data(), q_width, rows.rows), kOutput, layer.post_attn_norm, h);
  barrier();
  rewind(kOutput);
  gate_up(layer, normalize(h, layer.mlp_norm, rows.rows));
  barrier();
  rewind(kGateUp);
  add_product(layer.down, quantize(work_.gate.data(), shape_.intermediate, rows.rows), kDown, layer.post_mlp_norm, h);
  barrier();
  rewind(kDown);
}

void LayerStep::fill(const float* h, const RowsView& rows, const Layer& layer, const KvLayer& kv) {
  project_heads(rows, layer, kv, normalize(h, layer.attn_norm, rows.rows), false);
  barrier();
  rewind(kQkv);
  barrier();  // the next layer takes from the counter at once
}

// The units of all parts, then the norm over them.
void LayerStep::join_row(const Join& join, const PackedMatrix& embedding, int token, const float* states, float* out) {
  const float* ones = work_.ones.data();
  embed_token(shape_, kernels_, embedding, token, out);
  kernels_.rms_norm(out, ones, shape_.hidden, shape_.norm_eps, out);
  for (int64_t part = 1; part < join.parts(); ++part) {
    const int64_t at = part * shape_.hidden;
    kernels_.rms_norm(states + at - shape_.hidden, ones, shape_.hidden, shape_.norm_eps, out + at);
  }
  kernels_.rms_norm(out, join.norm, join.matrix.in, shape_.norm_eps, out);
}

void LayerStep::join(const Join& join, const PackedMatrix& embedding, const RowsView& rows, const float* states,
                     float* h) {
  const PackedMatrix& m = join.matrix;
  const bool own = rows.rows <= kPrivateRows;
  float* values = own ? work_.own[thread_].values.data() : work_.shared.values.data();
  const Range mine = own ? Range{0, rows.rows} : share(rows.rows, thread_, threads_);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    join_row(join, embedding, rows.tokens[r], states + r * (join.parts() - 1) * shape_.hidden, values + r * m.in);
  }
  const Activations input = quantize(values, m.in, rows.rows);
  const int piece = piece_of(groups_of(m));
  for (int g = take(kJoin, piece); g < groups_of(m); g = take(kJoin, piece)) {
    kernels_.matmul(&m, &input, g, std::min(g + piece, groups_of(m)), h, m.out);
  }
  barrier();
}

// The workspace's product becomes h + up x silu(down x norm(h)), by pieces of the rank and then of the width.
void LayerStep::adapt(const Head& head, const float* h, int rows) {
  const int rank = head.down.out;
  const Activations input = normalize(h, head.input_norm, rows);
  for (int g = take(kAdapterDown); g < groups_of(head.down); g = take(kAdapterDown)) {
    kernels_.matmul(&head.down, &input, g, g + 1, work_.inner.data(), rank);
    const int first = g * kTile;
    const int width = std::min(first + kTile, rank) - first;
    for (int64_t r = 0; r < rows; ++r) {
      float* inner = work_.inner.data() + r * rank + first;
      kernels_.swiglu(inner, work_.ones.data(), inner, width);
    }
  }
  barrier();
  const Activations inner = quantize(work_.inner.data(), rank, rows);
  for (int g = take(kAdapterUp, kPiece); g < groups_of(head.up); g = take(kAdapterUp, kPiece)) {
    const int end = std::min(g + kPiece, groups_of(head.up));
    kernels_.matmul(&head.up, &inner, g, end, work_.product.data(), shape_.hidden);
    const int first = g * kTile;
    const int width = std::min(end * kTile, shape_.hidden) - first;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * shape_.hidden + first;
      kernels_.add(work_.product.data() + at, h + at, width);
    }
  }
  barrier();
}

Activations LayerStep::head_input(const Head& head, const float* h, int rows) {
  if (!head.input_norm) return normalize(h, head.norm, rows);
  adapt(head, h, rows);
  return normalize(work_.product.data(), head.norm, rows);
}

bool LayerStep::take_head(const PackedMatrix& m, Range& groups) {
  constexpr int piece = 4 * kPiece;
  groups.begin = take(kHead, piece);
  groups.end = std::min(groups.begin + piece, groups_of(m));
  return groups.begin < groups.end;
}

void LayerStep::head(const PackedMatrix& m, const Activations& input, float* out, int64_t out_stride) {
  for (Range groups; take_head(m, groups);) {
    kernels_.matmul(&m, &input, groups.begin, groups.end, out, out_stride);
  }
}

void embed_token(const Shape& shape, const Kernels& kernels, const PackedMatrix& embedding, int token, float* out) {
  kernels.embed_row(&embedding, token, out);
  for (int i = 0; shape.embedding_scale != 1.0f && i < shape.hidden; ++i) out[i] = out[i] * shape.embedding_scale;
}

void plan_attention(const Shape& shape, const RowsView& rows, int threads, Workspace& work) {
  work.items.clear();
  const int group = shape.heads / shape.kv_heads;
  int last = 0;
  for (int r = 0; r < rows.rows;) {
    int end = r;
    for (; end < rows.rows && end - r < kRowTile && rows.sequence[end] == rows.sequence[r]; ++end) {
      last = std::max(last, rows.positions[end]);
    }
    for (int head = 0; head < shape.kv_heads; ++head) work.items.push_back({r, end - r, head, head * group, group});
    r = end;
  }
  const int pages = last / kPage + 1;
  const bool long_walk = rows.rows <= kRowTile && last >= kLongWalk && rows.rows * shape.heads * pages <= kWalkRoom;
  work.plan_walks(shape, rows.rows, long_walk ? pages : 0);
  if (work.walk_pages > 0 || static_cast<int>(work.items.size()) >= 2 * threads) return;
  std::vector<AttentionItem> single;  // too few items to share out: one query head each
  for (const AttentionItem& item : work.items) {
    for (int i = 0; i < item.heads; ++i) {
      single.push_back({item.first_row, item.rows, item.kv_head, item.first_head + i, 1});
    }
  }
  work.items = std::move(single);
}

}  // namespace offramp
