// K/V storage and attention, scalar: pages of 32 positions in logical order, online softmax, masked positions skipped.
#include "portable.h"

namespace offramp::portable {
namespace {

struct Cell {
  int page;
  int offset;
};

// Where the row finds logical position `position`.
Cell locate(const AttendTask* t, int row, int position) {
  int slot = position;
  if (position == t->position[row]) {
    slot = t->slot[row];
  } else if (position >= t->prefix_len[row]) {
    slot = t->ancestors[row][position - t->prefix_len[row]];
  }
  return {t->pages[slot / kPage], slot % kPage};
}

int64_t k_index(const KvLayer* kv, Cell c, int head, int d) {
  return ((static_cast<int64_t>(c.page) * kv->kv_heads + head) * kv->head_dim + d) * kPage + c.offset;
}

int64_t v_index(const KvLayer* kv, Cell c, int head, int d) {
  return ((static_cast<int64_t>(c.page) * kv->kv_heads + head) * kPage + c.offset) * kv->head_pad + d;
}

float load(const KvLayer* kv, const void* base, int64_t index) {
  if (kv->is_f16) return f32_from_f16(static_cast<const uint16_t*>(base)[index]);
  return static_cast<const float*>(base)[index];
}

void store(const KvLayer* kv, void* base, int64_t index, float value) {
  if (kv->is_f16) {
    static_cast<uint16_t*>(base)[index] = f16_from_f32(value);
  } else {
    static_cast<float*>(base)[index] = value;
  }
}

void attend_head(const KvLayer* kv, const AttendTask* t, int row, const float* q, float* out) {
  const int last = t->position[row];
  float m = -HUGE_VALF;
  float l = 0.0f;
  for (int d = 0; d < kv->head_dim; ++d) out[d] = 0.0f;
  for (int first = 0; first <= last; first += kPage) {
    const int count = last - first + 1 < kPage ? last - first + 1 : kPage;
    float e[kPage];
    float top = m;
    for (int i = 0; i < count; ++i) {
      const Cell cell = locate(t, row, first + i);
      float p[8] = {};
      for (int d = 0; d < kv->head_dim; ++d) p[d % 8] = p[d % 8] + q[d] * load(kv, kv->k, k_index(kv, cell, t->kv_head, d));
      e[i] = fold8(p) * t->scale;
      top = top > e[i] ? top : e[i];
    }
    if (m != -HUGE_VALF) {
      const float a = exp_f32(m - top);
      l = l * a;
      for (int d = 0; d < kv->head_dim; ++d) out[d] = out[d] * a;
    }
    float sums[8] = {};
    for (int i = 0; i < count; ++i) {
      e[i] = exp_f32(e[i] - top);
      sums[i % 8] = sums[i % 8] + e[i];
      const Cell cell = locate(t, row, first + i);
      for (int d = 0; d < kv->head_dim; ++d) out[d] = out[d] + e[i] * load(kv, kv->v, v_index(kv, cell, t->kv_head, d));
    }
    l = l + fold8(sums);
    m = top;
  }
  const float inverse = 1.0f / l;
  for (int d = 0; d < kv->head_dim; ++d) out[d] = out[d] * inverse;
}

}  // namespace

void store_k(const KvLayer* kv, int page, int offset, int kv_head, const float* k) {
  for (int d = 0; d < kv->head_dim; ++d) store(kv, kv->k, k_index(kv, {page, offset}, kv_head, d), k[d]);
}

void store_v(const KvLayer* kv, int page, int offset, int kv_head, const float* v) {
  for (int d = 0; d < kv->head_dim; ++d) store(kv, kv->v, v_index(kv, {page, offset}, kv_head, d), v[d]);
}

void attend(const KvLayer* kv, const AttendTask* task) {
  for (int row = 0; row < task->rows; ++row) {
    for (int head = 0; head < task->query_heads; ++head) {
      attend_head(kv, task, row, task->q[row] + head * kv->head_dim, task->out[row] + head * kv->head_dim);
    }
  }
}

}  // namespace offramp::portable
