#include "executor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "packing.h"
#include "top.h"

namespace offramp {

LazyMemory::LazyMemory(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data_ == MAP_FAILED) throw std::bad_alloc();
}

LazyMemory::~LazyMemory() { munmap(data_, bytes_); }

int32_t summarize_row(const Kernels& kernels, const float* logits, int64_t n, float* scores) {
  Peak peak;
  kernels.peak(logits, n, &peak);
  const double total = peak.total;
  const double doubt = std::log(total) - static_cast<double>(peak.falls) / total;
  const double sure = 1.0 - doubt / std::log(static_cast<double>(std::max<int64_t>(2, n)));
  scores[kTopProbability] = 1.0f / peak.total;
  scores[kMargin] = (1.0f - peak.second) / peak.total;
  scores[kEntropy] = static_cast<float>(sure < 0.0 ? 0.0 : sure > 1.0 ? 1.0 : sure);
  return std::isnan(peak.total) ? -1 : peak.index;
}

Executor::Executor(const Shape& shape, int layers, bool kv_f16, int num_pages, int threads, const Kernels& kernels)
    : shape_(shape),
      model_layers_(layers),
      kv_f16_(kv_f16),
      num_pages_(num_pages),
      threads_(threads),
      active_(threads),
      kernels_(kernels),
      work_(shape, threads) {}

void Executor::set_head(const PackedMatrix& matrix, const float* final_norm) {
  heads_[0].matrix = matrix;
  heads_[0].norm = final_norm;
}

int Executor::add_head(const Head& head) {
  if (head.input_norm) work_.widen(head.down.out);
  heads_.push_back(head);
  return static_cast<int>(heads_.size()) - 1;
}

void Executor::add_layer(const Layer& layer) {
  const int head_pad = round_up(shape_.head_dim, kLanes);
  const size_t size = kv_f16_ ? 2 : 4;
  const size_t cells = static_cast<size_t>(num_pages_) * shape_.kv_heads * kPage;
  auto k = std::make_unique<LazyMemory>(cells * shape_.head_dim * size);
  auto v = std::make_unique<LazyMemory>(cells * head_pad * size);
  kv_.push_back({k->data(), v->data(), kv_f16_ ? 1 : 0, shape_.kv_heads, shape_.head_dim, head_pad});
  memory_.push_back(std::move(k));
  memory_.push_back(std::move(v));
  layers_.push_back(layer);
}

void Executor::set_rope(int index, const RopeTable& table) {
  if (index == static_cast<int>(ropes_.size())) ropes_.push_back(table);
  ropes_.at(index) = table;
}

void Executor::check(const RowsView& rows) const {
  const auto refuse = [](const char* what, int row) {
    throw std::invalid_argument(std::string("rows: ") + what + " at row " + std::to_string(row));
  };
  int positions = ropes_.empty() ? 0 : kNoWindow;
  for (const RopeTable& rope : ropes_) positions = std::min(positions, rope.positions);
  for (const Layer& layer : layers_) {
    if (layer.rope >= static_cast<int>(ropes_.size())) throw std::invalid_argument("a layer has no rope table yet");
  }
  for (int i = 0; i < rows.page_starts[rows.sequences]; ++i) {
    if (rows.page_ids[i] < 0 || rows.page_ids[i] >= num_pages_) throw std::invalid_argument("rows: page id out of range");
  }
  for (int r = 0; r < rows.rows; ++r) {
    if (rows.tokens[r] < 0 || rows.tokens[r] >= shape_.vocab) refuse("token id out of range", r);
    const int s = rows.sequence[r];
    if (s < 0 || s >= rows.sequences) refuse("sequence index out of range", r);
    const int slots = (rows.page_starts[s + 1] - rows.page_starts[s]) * kPage;
    const int position = rows.positions[r];
    const int prefix = rows.prefix_lens[r];
    if (position < 0 || position >= positions) refuse("position out of range", r);
    if (rows.slots[r] < 0 || rows.slots[r] >= slots) refuse("slot outside the sequence's pages", r);
    if (prefix < 0 || prefix > position || prefix > slots) refuse("prefix_len out of range", r);
    const int first = rows.ancestor_starts[r];
    if (rows.ancestor_starts[r + 1] - first != position - prefix) refuse("ancestors don't reach from prefix to row", r);
    for (int i = first; i < rows.ancestor_starts[r + 1]; ++i) {
      if (rows.ancestor_slots[i] < 0 || rows.ancestor_slots[i] >= slots) refuse("ancestor slot out of range", r);
    }
  }
}

// Ranges of the model's layers, or one side layer.
void Executor::check_layers(int start, int stop) const {
  const bool of_model = 0 <= start && start <= stop && stop <= model_layers_;
  const bool one_side_layer = start >= model_layers_ && stop == start + 1;
  if (stop > num_layers() || !(of_model || one_side_layer)) throw std::invalid_argument("layer range out of bounds");
}

void Executor::check_slots(const int32_t* slots, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) {
    if (slots[i] < 0 || slots[i] / kPage >= num_pages_) throw std::invalid_argument("slot out of range");
  }
}

int Executor::head_outputs(int head) const {
  if (!heads_[0].norm) throw std::invalid_argument("the executor has no head yet");
  if (head < 0 || head >= static_cast<int>(heads_.size())) throw std::invalid_argument("no such head");
  return heads_[head].matrix.out;
}

void Executor::embed(const RowsView& rows, float* h) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    embed_token(shape_, kernels_, embedding_, rows.tokens[r], h + r * shape_.hidden);
  }
}

void Executor::run_layers(float* h, const RowsView& rows, int start, int stop) {
  if (rows.rows == 0) return;
  plan_attention(shape_, rows, active_, work_);
  parallel(rows.rows, [&](LayerStep& step, int) {
    for (int i = start; i < stop; ++i) step.run(h, rows, layers_[i], kv_[i]);
  });
}

void Executor::fill(const float* h, const RowsView& rows, int start, int stop) {
  if (rows.rows == 0) return;
  parallel(rows.rows, [&](LayerStep& step, int) {
    for (int i = start; i < stop; ++i) step.fill(h, rows, layers_[i], kv_[i]);
  });
}

void Executor::logits(int head, const float* h, int rows, const int32_t* ids, int64_t num_ids, float* out) {
  if (rows == 0) return;
  const PackedMatrix& matrix = heads_[head].matrix;
  std::vector<float> room(ids ? static_cast<size_t>(threads_) * rows * kTile : 0);
  parallel(rows, [&](LayerStep& step, int thread) {
    const Activations input = step.head_input(heads_[head], h, rows);
    if (!ids) {
      step.head(matrix, input, out, matrix.out);
      return;
    }
    float* lanes = room.data() + static_cast<int64_t>(thread) * rows * kTile;
    const Range mine = share(static_cast<int>(num_ids), thread, active_);
    int cached = -1;
    for (int i = mine.begin; i < mine.end; ++i) {
      const int group = ids[i] / kTile;
      if (group != cached) {
        PackedMatrix one = matrix;  // the group alone, so that its outputs land at 0..15
        one.tiles += group * (packed_bytes(matrix.format, matrix.out, matrix.in) / groups_of(matrix));
        one.out = std::min(kTile, matrix.out - group * kTile);
        kernels_.matmul(&one, &input, 0, 1, lanes, kTile);
        cached = group;
      }
      for (int64_t r = 0; r < rows; ++r) out[r * num_ids + i] = lanes[r * kTile + ids[i] % kTile];
    }
  });
}

// Rows are shared out once all products are there: a sum has its one fixed order, and some microseconds for a row are
// little beside the matrix.
void Executor::summarize(int head, const float* h, int rows, float* logits, int32_t* best, float* scores) {
  if (rows == 0) return;
  const PackedMatrix& matrix = heads_[head].matrix;
  parallel(rows, [&](LayerStep& step, int thread) {
    step.head(matrix, step.head_input(heads_[head], h, rows), logits, matrix.out);
    ThreadPool::instance().barrier();
    const Range mine = share(rows, thread, active_);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
      best[r] = summarize_row(kernels_, logits + r * matrix.out, matrix.out, scores + r * kScores);
    }
  });
}

void Executor::top(int head, const float* h, int rows, int k, int32_t* ids, float* logits, float* log_sum_exp) {
  if (rows == 0) return;
  TopSearch search(kernels_, heads_[head].matrix, rows, k, active_);
  parallel(rows, [&](LayerStep& step, int thread) {
    search.run(step, thread, step.head_input(heads_[head], h, rows), ids, logits, log_sum_exp);
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
