#include "executor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>

namespace offramp {
namespace {

struct Range {
  int begin;
  int end;
};

// The part of 0..n-1 that belongs to one of the threads.
Range share(int n, int thread, int threads) {
  return {static_cast<int>(static_cast<int64_t>(n) * thread / threads),
          static_cast<int>(static_cast<int64_t>(n) * (thread + 1) / threads)};
}

int groups_of(const PackedMatrix& m) { return (m.out + kLanes - 1) / kLanes; }

int padded(int n, int to) { return (n + to - 1) / to * to; }

}  // namespace

LazyMemory::LazyMemory(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data_ == MAP_FAILED) throw std::bad_alloc();
}

LazyMemory::~LazyMemory() { munmap(data_, bytes_); }

// Rows of one sequence that walk the context together, and the heads of one item of work.
struct Executor::AttentionItem {
  int first_row;
  int rows;
  int kv_head;
  int first_head;
  int heads;
};

// Buffers of one call, kept between calls and grown on demand; rows x features unless said otherwise.
struct Executor::Workspace {
  int capacity = 0;
  int blocks = 0;  // of the widest input
  std::vector<float> normed, q, k, v, attended, gate, up, product;
  std::vector<int16_t> quants;
  std::vector<float> scales, block_sums;
  std::vector<float> scratch;  // [threads][scratch_floats]
  int64_t scratch_floats = 0;
  std::vector<AttentionItem> items;
  std::atomic<int> next_item{0};
};

Executor::Executor(const Shape& shape, bool kv_f16, int num_pages, int threads, const Kernels& kernels)
    : shape_(shape), kv_f16_(kv_f16), num_pages_(num_pages), threads_(threads), kernels_(kernels) {
  work_ = std::make_unique<Workspace>();
  const int widest = std::max({shape.hidden, shape.intermediate, shape.heads * shape.head_dim});
  work_->blocks = padded(widest, kBlock) / kBlock;
  const int head_pad = padded(shape.head_dim, kLanes);
  work_->scratch_floats = attend_scratch_floats(shape.head_dim, head_pad, shape.heads / shape.kv_heads);
  work_->scratch.resize(static_cast<size_t>(work_->scratch_floats) * threads);
}

Executor::~Executor() = default;

void Executor::set_head(const PackedMatrix& head, const float* final_norm) {
  head_ = head;
  final_norm_ = final_norm;
}

void Executor::add_layer(const Layer& layer) {
  const int head_pad = padded(shape_.head_dim, kLanes);
  const size_t size = kv_f16_ ? 2 : 4;
  const size_t cells = static_cast<size_t>(num_pages_) * shape_.kv_heads * kPage;
  auto k = std::make_unique<LazyMemory>(cells * shape_.head_dim * size);
  auto v = std::make_unique<LazyMemory>(cells * head_pad * size);
  kv_.push_back({k->data(), v->data(), kv_f16_ ? 1 : 0, shape_.kv_heads, shape_.head_dim, head_pad});
  memory_.push_back(std::move(k));
  memory_.push_back(std::move(v));
  layers_.push_back(layer);
}

void Executor::set_rope(const float* cosines, const float* sines, int positions) {
  cosines_ = cosines;
  sines_ = sines;
  rope_positions_ = positions;
}

void Executor::check(const RowsView& rows) const {
  const auto refuse = [](const char* what, int row) {
    throw std::invalid_argument(std::string("rows: ") + what + " at row " + std::to_string(row));
  };
  for (int s = 0; s < rows.sequences; ++s) {
    if (rows.page_starts[s] > rows.page_starts[s + 1]) throw std::invalid_argument("rows: page_starts must ascend");
    for (int i = rows.page_starts[s]; i < rows.page_starts[s + 1]; ++i) {
      if (rows.page_ids[i] < 0 || rows.page_ids[i] >= num_pages_) throw std::invalid_argument("rows: page id out of range");
    }
  }
  for (int r = 0; r < rows.rows; ++r) {
    if (rows.tokens[r] < 0 || rows.tokens[r] >= shape_.vocab) refuse("token id out of range", r);
    const int s = rows.sequence[r];
    if (s < 0 || s >= rows.sequences) refuse("sequence index out of range", r);
    const int slots = (rows.page_starts[s + 1] - rows.page_starts[s]) * kPage;
    const int position = rows.positions[r];
    const int prefix = rows.prefix_lens[r];
    if (position < 0 || position >= rope_positions_) refuse("position out of range", r);
    if (rows.slots[r] < 0 || rows.slots[r] >= slots) refuse("slot outside the sequence's pages", r);
    if (prefix < 0 || prefix > position || prefix > slots) refuse("prefix_len out of range", r);
    const int first = rows.ancestor_starts[r];
    if (rows.ancestor_starts[r + 1] - first != position - prefix) refuse("ancestors don't reach from prefix to row", r);
    for (int i = first; i < rows.ancestor_starts[r + 1]; ++i) {
      if (rows.ancestor_slots[i] < 0 || rows.ancestor_slots[i] >= slots) refuse("ancestor slot out of range", r);
    }
  }
}

void Executor::check_layers(int start, int stop) const {
  if (start < 0 || start > stop || stop > num_layers()) throw std::invalid_argument("layer range out of bounds");
}

void Executor::prepare(int rows) {
  Workspace& w = *work_;
  if (rows <= w.capacity) return;
  const size_t n = static_cast<size_t>(rows);
  const size_t width = static_cast<size_t>(w.blocks) * kBlock;
  const size_t kv = static_cast<size_t>(shape_.kv_heads) * shape_.head_dim;
  w.normed.resize(n * width);
  w.q.resize(n * shape_.heads * shape_.head_dim);
  w.attended.resize(n * shape_.heads * shape_.head_dim);
  w.k.resize(n * kv);
  w.v.resize(n * kv);
  w.gate.resize(n * shape_.intermediate);
  w.up.resize(n * shape_.intermediate);
  w.product.resize(n * shape_.hidden);
  w.quants.resize(n * width);
  w.scales.resize(n);
  w.block_sums.resize(n * w.blocks);
  w.capacity = rows;
}

void Executor::embed(const RowsView& rows, float* h) {
  for (int r = 0; r < rows.rows; ++r) {
    kernels_.embed_row(&embedding_, rows.tokens[r], h + static_cast<int64_t>(r) * shape_.hidden);
  }
}

// Norm of the thread's rows, then their quantized form; a barrier must follow.
void Executor::normalize(int thread, const float* h, const float* norm, int rows) {
  const Range mine = share(rows, thread, threads_);
  for (int r = mine.begin; r < mine.end; ++r) {
    const int64_t at = static_cast<int64_t>(r) * shape_.hidden;
    kernels_.rms_norm(h + at, norm, shape_.hidden, shape_.norm_eps, work_->normed.data() + at);
  }
  quantize(thread, work_->normed.data(), shape_.hidden, rows);
}

void Executor::quantize(int thread, const float* x, int features, int rows) {
  Workspace& w = *work_;
  const int blocks = padded(features, kBlock) / kBlock;
  const Range mine = share(rows, thread, threads_);
  for (int r = mine.begin; r < mine.end; ++r) {
    const int64_t row = r;
    kernels_.quantize_row(x + row * features, features, blocks, w.quants.data() + row * blocks * kBlock,
                          w.scales.data() + row, w.block_sums.data() + row * blocks);
  }
}

// The thread's share of the outputs of one matrix, for all rows.
void Executor::product(int thread, const PackedMatrix& m, int rows, const float* values, int64_t stride, float* out,
                       int64_t out_stride) {
  const Workspace& w = *work_;
  const int blocks = padded(m.in, kBlock) / kBlock;
  const Activations a = {values, w.quants.data(), w.scales.data(), w.block_sums.data(), rows, blocks, stride};
  const Range mine = share(groups_of(m), thread, threads_);
  kernels_.matmul(&m, &a, mine.begin, mine.end, out, out_stride);
}

// Rope on the thread's rows of k (and of q, unless q is null), then K and V into their slots.
void Executor::write_kv(int thread, const KvLayer& kv, const RowsView& rows, float* q) {
  Workspace& w = *work_;
  const int half = shape_.rotary_dim / 2;
  const Range mine = share(rows.rows, thread, threads_);
  for (int r = mine.begin; r < mine.end; ++r) {
    const float* cosines = cosines_ + static_cast<int64_t>(rows.positions[r]) * half;
    const float* sines = sines_ + static_cast<int64_t>(rows.positions[r]) * half;
    for (int head = 0; q && head < shape_.heads; ++head) {
      kernels_.rope(q + (static_cast<int64_t>(r) * shape_.heads + head) * shape_.head_dim, shape_.rotary_dim, cosines,
                    sines);
    }
    const int page = rows.pages_of(r)[rows.slots[r] / kPage];
    for (int head = 0; head < shape_.kv_heads; ++head) {
      const int64_t at = (static_cast<int64_t>(r) * shape_.kv_heads + head) * shape_.head_dim;
      kernels_.rope(w.k.data() + at, shape_.rotary_dim, cosines, sines);
      kernels_.store_kv(&kv, page, rows.slots[r] % kPage, head, w.k.data() + at, w.v.data() + at);
    }
  }
}

void Executor::plan_attention(const RowsView& rows) {
  Workspace& w = *work_;
  w.items.clear();
  const int group = shape_.heads / shape_.kv_heads;
  int tiles = 0;
  for (int r = 0; r < rows.rows; ++tiles) {
    int end = r + 1;
    while (end < rows.rows && end - r < kRowTile && rows.sequence[end] == rows.sequence[r]) ++end;
    for (int head = 0; head < shape_.kv_heads; ++head) w.items.push_back({r, end - r, head, head * group, group});
    r = end;
  }
  if (static_cast<int>(w.items.size()) >= 2 * threads_) return;
  std::vector<AttentionItem> single;  // too few items to share out: one query head each
  for (const AttentionItem& item : w.items) {
    for (int i = 0; i < item.heads; ++i) {
      single.push_back({item.first_row, item.rows, item.kv_head, item.first_head + i, 1});
    }
  }
  w.items = std::move(single);
}

void Executor::attention(int thread, const KvLayer& kv, const RowsView& rows) {
  Workspace& w = *work_;
  AttendTask task;
  task.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim)));
  task.scratch = w.scratch.data() + static_cast<int64_t>(thread) * w.scratch_floats;
  const int count = static_cast<int>(w.items.size());
  for (int i = w.next_item.fetch_add(1); i < count; i = w.next_item.fetch_add(1)) {
    const AttentionItem& item = w.items[i];
    task.pages = rows.pages_of(item.first_row);
    task.kv_head = item.kv_head;
    task.query_heads = item.heads;
    task.rows = item.rows;
    for (int j = 0; j < item.rows; ++j) {
      const int r = item.first_row + j;
      const int64_t at = (static_cast<int64_t>(r) * shape_.heads + item.first_head) * shape_.head_dim;
      task.q[j] = w.q.data() + at;
      task.out[j] = w.attended.data() + at;
      task.position[j] = rows.positions[r];
      task.prefix_len[j] = rows.prefix_lens[r];
      task.slot[j] = rows.slots[r];
      task.ancestors[j] = rows.ancestor_slots + rows.ancestor_starts[r];
    }
    kernels_.attend(&kv, &task);
  }
}

void Executor::attention_block(int thread, float* h, const RowsView& rows, const Layer& layer, const KvLayer& kv) {
  ThreadPool& pool = ThreadPool::instance();
  Workspace& w = *work_;
  const int q_width = shape_.heads * shape_.head_dim;
  const int kv_width = shape_.kv_heads * shape_.head_dim;
  normalize(thread, h, layer.attn_norm, rows.rows);
  if (thread == 0) w.next_item.store(0);
  pool.barrier();
  product(thread, layer.q, rows.rows, w.normed.data(), shape_.hidden, w.q.data(), q_width);
  product(thread, layer.k, rows.rows, w.normed.data(), shape_.hidden, w.k.data(), kv_width);
  product(thread, layer.v, rows.rows, w.normed.data(), shape_.hidden, w.v.data(), kv_width);
  pool.barrier();
  write_kv(thread, kv, rows, w.q.data());
  pool.barrier();
  attention(thread, kv, rows);
  pool.barrier();
  quantize(thread, w.attended.data(), q_width, rows.rows);
  pool.barrier();
  product(thread, layer.o, rows.rows, w.attended.data(), q_width, w.product.data(), shape_.hidden);
  pool.barrier();
  const Range mine = share(rows.rows, thread, threads_);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    kernels_.add(h + r * shape_.hidden, w.product.data() + r * shape_.hidden, shape_.hidden);
  }
}

void Executor::mlp_block(int thread, float* h, int rows, const Layer& layer) {
  ThreadPool& pool = ThreadPool::instance();
  Workspace& w = *work_;
  const int width = shape_.intermediate;
  normalize(thread, h, layer.mlp_norm, rows);
  pool.barrier();
  product(thread, layer.gate, rows, w.normed.data(), shape_.hidden, w.gate.data(), width);
  product(thread, layer.up, rows, w.normed.data(), shape_.hidden, w.up.data(), width);
  const Range groups = share(groups_of(layer.gate), thread, threads_);
  const int first = groups.begin * kLanes;
  const int last = std::min(groups.end * kLanes, width);
  for (int64_t r = 0; r < rows; ++r) {
    float* gate = w.gate.data() + r * width + first;
    if (last > first) kernels_.swiglu(gate, w.up.data() + r * width + first, gate, last - first);
  }
  pool.barrier();
  quantize(thread, w.gate.data(), width, rows);
  pool.barrier();
  product(thread, layer.down, rows, w.gate.data(), width, w.product.data(), shape_.hidden);
  pool.barrier();
  const Range mine = share(rows, thread, threads_);
  for (int64_t r = mine.begin; r < mine.end; ++r) {
    kernels_.add(h + r * shape_.hidden, w.product.data() + r * shape_.hidden, shape_.hidden);
  }
}

void Executor::run_layers(float* h, const RowsView& rows, int start, int stop) {
  if (rows.rows == 0) return;
  prepare(rows.rows);
  plan_attention(rows);
  ThreadPool::instance().run(threads_, [&](int thread) {
    for (int i = start; i < stop; ++i) {
      attention_block(thread, h, rows, layers_[i], kv_[i]);
      mlp_block(thread, h, rows.rows, layers_[i]);
    }
  });
}

void Executor::fill(const float* h, const RowsView& rows, int start, int stop) {
  if (rows.rows == 0) return;
  prepare(rows.rows);
  ThreadPool& pool = ThreadPool::instance();
  const int kv_width = shape_.kv_heads * shape_.head_dim;
  pool.run(threads_, [&](int thread) {
    for (int i = start; i < stop; ++i) {
      normalize(thread, h, layers_[i].attn_norm, rows.rows);
      pool.barrier();
      product(thread, layers_[i].k, rows.rows, work_->normed.data(), shape_.hidden, work_->k.data(), kv_width);
      product(thread, layers_[i].v, rows.rows, work_->normed.data(), shape_.hidden, work_->v.data(), kv_width);
      pool.barrier();
      write_kv(thread, kv_[i], rows, nullptr);
      pool.barrier();
    }
  });
}

void Executor::head_logits(int thread, const float* h, int rows, float* out) {
  normalize(thread, h, final_norm_, rows);
  ThreadPool::instance().barrier();
  product(thread, head_, rows, work_->normed.data(), shape_.hidden, out, shape_.vocab);
}

void Executor::logits(const float* h, int rows, const int32_t* ids, int64_t num_ids, float* out) {
  if (rows == 0) return;
  prepare(rows);
  if (!ids) {
    ThreadPool::instance().run(threads_, [&](int thread) { head_logits(thread, h, rows, out); });
    return;
  }
  const Workspace& w = *work_;
  const int blocks = padded(head_.in, kBlock) / kBlock;
  ThreadPool::instance().run(threads_, [&](int thread) {
    normalize(thread, h, final_norm_, rows);
    ThreadPool::instance().barrier();
    const Activations a = {w.normed.data(), w.quants.data(),   w.scales.data(), w.block_sums.data(),
                           rows,            blocks,            shape_.hidden};
    std::vector<float> lanes(static_cast<size_t>(rows) * kLanes);
    const Range mine = share(static_cast<int>(num_ids), thread, threads_);
    int cached = -1;
    for (int i = mine.begin; i < mine.end; ++i) {
      const int group = ids[i] / kLanes;
      if (group != cached) {
        // The kernel addresses outputs absolutely: shift the target so that this group lands at lane 0.
        kernels_.matmul(&head_, &a, group, group + 1, lanes.data() - static_cast<int64_t>(group) * kLanes, kLanes);
        cached = group;
      }
      for (int64_t r = 0; r < rows; ++r) out[r * num_ids + i] = lanes[r * kLanes + ids[i] % kLanes];
    }
  });
}

void Executor::top(const float* h, int rows, int k, int32_t* ids, float* logits, float* log_sum_exp) {
  if (rows == 0) return;
  prepare(rows);
  const int64_t vocab = shape_.vocab;
  std::vector<float> all(static_cast<size_t>(rows) * vocab);
  ThreadPool& pool = ThreadPool::instance();
  pool.run(threads_, [&](int thread) {
    head_logits(thread, h, rows, all.data());
    pool.barrier();
    std::vector<int32_t> order(static_cast<size_t>(vocab));
    const Range mine = share(rows, thread, threads_);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
      const float* row = all.data() + r * vocab;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [row](int32_t a, int32_t b) {
        const bool a_is_number = row[a] == row[a];
        const bool b_is_number = row[b] == row[b];
        if (a_is_number != b_is_number) return a_is_number;  // NaN last: a strict order whatever the row holds
        return a_is_number && row[a] != row[b] ? row[a] > row[b] : a < b;
      });
      for (int i = 0; i < k; ++i) {
        ids[r * k + i] = order[i];
        logits[r * k + i] = row[order[i]];
      }
      log_sum_exp[r] = kernels_.log_sum_exp(row, vocab);
    }
  });
}

void Executor::copy_slots(const int32_t* source, const int32_t* target, int64_t n) {
  const size_t size = kv_f16_ ? 2 : 4;
  std::vector<uint8_t> held;
  for (const KvLayer& kv : kv_) {
    const size_t v_bytes = static_cast<size_t>(kv.head_pad) * size;
    const size_t cell_bytes = static_cast<size_t>(kv.kv_heads) * (kv.head_dim * size + v_bytes);
    held.resize(static_cast<size_t>(n) * cell_bytes);
    for (const bool writing : {false, true}) {
      const int32_t* slots = writing ? target : source;
      uint8_t* cursor = held.data();
      const auto move = [&](void* base, int64_t index, size_t bytes) {
        uint8_t* cell = static_cast<uint8_t*>(base) + index * static_cast<int64_t>(size);
        writing ? std::memcpy(cell, cursor, bytes) : std::memcpy(cursor, cell, bytes);
        cursor += bytes;
      };
      for (int64_t i = 0; i < n; ++i) {
        const int64_t page = slots[i] / kPage;
        const int64_t offset = slots[i] % kPage;
        for (int head = 0; head < kv.kv_heads; ++head) {
          const int64_t block = page * kv.kv_heads + head;
          for (int64_t d = 0; d < kv.head_dim; ++d) move(kv.k, (block * kv.head_dim + d) * kPage + offset, size);
          move(kv.v, (block * kPage + offset) * kv.head_pad, v_bytes);
        }
      }
    }
  }
}

}  // namespace offramp
