// Buffers of one call, kept between calls and grown on demand. Sizes are rows x features unless said otherwise.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "../kernels/kernels.h"

namespace offramp {

struct Shape {
  int hidden;
  int intermediate;
  int heads;
  int kv_heads;
  int head_dim;
  int vocab;
  float norm_eps;
  float embedding_scale;
  float attention_scale;
  bool gelu;  // the MLP's activation is gelu's tanh approximation, not silu
};

// The window of a layer without one: more than any position.
constexpr int kNoWindow = 0x7fffffff;

inline int round_up(int n, int to) { return (n + to - 1) / to * to; }
inline int blocks_of(int features) { return (features + kBlock - 1) / kBlock; }
inline int groups_of(const PackedMatrix& m) { return (m.out + kTile - 1) / kTile; }

struct Range {
  int begin;
  int end;
};

// The part of 0..n-1 that belongs to one of the threads.
inline Range share(int n, int thread, int threads) {
  return {static_cast<int>(static_cast<int64_t>(n) * thread / threads),
          static_cast<int>(static_cast<int64_t>(n) * (thread + 1) / threads)};
}

// The input of a product in all its forms: normalized values and their quantized twin.
struct InputBuffer {
  std::vector<float> values, scales, block_sums;
  std::vector<int16_t> quants;

  void resize(size_t rows, size_t blocks) {
    values.resize(rows * blocks * kBlock);
    quants.resize(rows * blocks * kBlock);
    scales.resize(rows);
    block_sums.resize(rows * blocks);
  }
};

// Rows of one sequence that walk the context together, and the heads of one item of work.
struct AttentionItem {
  int first_row;
  int rows;
  int kv_head;
  int first_head;
  int heads;
};

// Work that threads take piece by piece, so that one that lost its core for a moment doesn't hold up the rest.
// A counter is set back by thread 0 between two barriers in which nobody takes from it.
enum Phase : int { kQkv, kAttention, kWeights, kValues, kOutput, kGateUp, kDown, kAdapterDown, kAdapterUp, kHead, kJoin, kPhases };

// Up to this many rows every thread prepares the inputs for itself: cheaper than a barrier.
constexpr int kPrivateRows = 4;

struct Workspace {
  int capacity = 0;
  int blocks = 0;  // of the widest input
  int rank = 0;    // of the widest adapter
  std::vector<float> q, k, v, attended, gate, up, product;
  std::vector<float> inner;  // of an adapter, rows x rank
  std::vector<float> ones;   // [rank or hidden, the larger one]
  InputBuffer shared;
  std::vector<InputBuffer> own;  // [threads], for kPrivateRows
  std::vector<float> scratch;    // [threads][scratch_floats]
  int64_t scratch_floats = 0;
  std::vector<AttentionItem> items;
  int walk_pages = 0;           // of the longest row; 0 where the walk is made in one go
  std::vector<LongWalk> walks;  // [rows][heads]
  std::vector<float> walk_floats;
  std::atomic<int> next[kPhases] = {};

  Workspace(const Shape& shape, int threads) {
    blocks = blocks_of(std::max({shape.hidden, shape.intermediate, shape.heads * shape.head_dim}));
    scratch_floats =
        attend_scratch_floats(shape.head_dim, round_up(shape.head_dim, kLanes), shape.heads / shape.kv_heads);
    scratch.resize(static_cast<size_t>(scratch_floats) * threads);
    ones.assign(shape.hidden, 1.0f);
    own.resize(threads);
    for (InputBuffer& buffer : own) buffer.resize(kPrivateRows, blocks);
  }

  // Room for heads with adapters of that rank.
  void widen(int to) {
    if (to <= rank) return;
    rank = to;
    ones.assign(std::max(ones.size(), static_cast<size_t>(rank)), 1.0f);
    capacity = 0;  // what grows with the rows is made anew
    widen_inputs(rank);
  }

  // Room for products of so many features.
  void widen_inputs(int features) {
    if (blocks_of(features) <= blocks) return;
    blocks = blocks_of(features);
    for (InputBuffer& buffer : own) buffer.resize(kPrivateRows, blocks);
    capacity = 0;
  }

  // Room for the passes of a long walk over `pages` pages; none for 0.
  void plan_walks(const Shape& shape, int rows, int pages) {
    walk_pages = pages;
    walks.clear();
    const int64_t each = static_cast<int64_t>(pages) * (kPage + 1) + 1;
    if (pages > 0) walk_floats.resize(static_cast<size_t>(rows) * shape.heads * each);
    for (int64_t i = 0; pages > 0 && i < static_cast<int64_t>(rows) * shape.heads; ++i) {
      float* scores = walk_floats.data() + i * each;
      walks.push_back({scores, scores + static_cast<int64_t>(pages) * kPage, scores + each - 1});
    }
  }

  void reserve(const Shape& shape, int rows) {
    if (rows <= capacity) return;
    const size_t n = static_cast<size_t>(rows);
    q.resize(n * shape.heads * shape.head_dim);
    attended.resize(q.size());
    k.resize(n * shape.kv_heads * shape.head_dim);
    v.resize(k.size());
    gate.resize(n * shape.intermediate);
    up.resize(n * shape.intermediate);
    product.resize(n * shape.hidden);
    inner.resize(n * rank);
    shared.resize(n, blocks);
    capacity = rows;
  }
};

}  // namespace offramp
