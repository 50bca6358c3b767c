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

// The row sees the positions [begin, end) of the page that begins at `first`, counted from there.
struct Seen {
  int begin;
  int end;
};

Seen seen_in(const AttendTask* t, int row, int first) {
  const int begin = t->first[row] - first;
  const int end = t->position[row] - first + 1;
  return {begin > 0 ? begin : 0, end < kPage ? end : kPage};
}

// The first position of the page that holds the row's first visible one.
int first_page(const AttendTask* t, int row) { return t->first[row] / kPage * kPage; }

float score(const KvLayer* kv, const AttendTask* t, int row, int head, int position) {
  const float* q = t->q[row] + static_cast<int64_t>(head) * kv->head_dim;
  const Cell cell = locate(t, row, position);
  float p[8] = {};
  for (int d = 0; d < kv->head_dim; ++d) p[d % 8] = p[d % 8] + q[d] * load(kv, kv->k, k_index(kv, cell, t->kv_head, d));
  return fold8(p) * t->scale;
}

// The online softmax of one row and query head.
struct Softmax {
  float m = -HUGE_VALF;
  float l = 0.0f;

  // Turns a page's scores into weights; returns the factor for what was summed before (1 on the first page).
  float soften(float* e, Seen seen) {
    float top = m;
    for (int i = seen.begin; i < seen.end; ++i) top = top > e[i] ? top : e[i];
    const float rescale = m == -HUGE_VALF ? 1.0f : exp_f32(m - top);
    float sums[8] = {};
    for (int i = seen.begin; i < seen.end; ++i) {
      e[i] = exp_f32(e[i] - top);
      sums[i % 8] = sums[i % 8] + e[i];
    }
    l = l * rescale + fold8(sums);
    m = top;
    return rescale;
  }
};

// out[d] = out[d] * rescale + the weighted values of a page.
void add_values(const KvLayer* kv, const AttendTask* t, int row, int first, const float* e, float rescale, int d_begin,
                int d_end, float* out) {
  const Seen seen = seen_in(t, row, first);
  for (int d = d_begin; d < d_end; ++d) {
    out[d] = out[d] * rescale;
    for (int i = seen.begin; i < seen.end; ++i) {
      out[d] = out[d] + e[i] * load(kv, kv->v, v_index(kv, locate(t, row, first + i), t->kv_head, d));
    }
  }
}

void store_k(const KvLayer* kv, int page, int offset, int kv_head, const float* k) {
  for (int d = 0; d < kv->head_dim; ++d) store(kv, kv->k, k_index(kv, {page, offset}, kv_head, d), k[d]);
}

void store_v(const KvLayer* kv, int page, int offset, int kv_head, const float* v) {
  for (int d = 0; d < kv->head_dim; ++d) store(kv, kv->v, v_index(kv, {page, offset}, kv_head, d), v[d]);
}

void attend_head(const KvLayer* kv, const AttendTask* t, int row, int head) {
  float* out = t->out[row] + static_cast<int64_t>(head) * kv->head_dim;
  Softmax softmax;
  for (int d = 0; d < kv->head_dim; ++d) out[d] = 0.0f;
  for (int first = first_page(t, row); first <= t->position[row]; first += kPage) {
    const Seen seen = seen_in(t, row, first);
    float e[kPage];
    for (int i = seen.begin; i < seen.end; ++i) e[i] = score(kv, t, row, head, first + i);
    const float rescale = softmax.soften(e, seen);
    add_values(kv, t, row, first, e, rescale, 0, kv->head_dim, out);
  }
  const float inverse = 1.0f / softmax.l;
  for (int d = 0; d < kv->head_dim; ++d) out[d] = out[d] * inverse;
}

void attend(const KvLayer* kv, const AttendTask* t) {
  for (int row = 0; row < t->rows; ++row) {
    for (int head = 0; head < t->query_heads; ++head) attend_head(kv, t, row, head);
  }
}

void attend_scores(const KvLayer* kv, const AttendTask* t, int page_begin, int page_end) {
  for (int row = 0; row < t->rows; ++row) {
    for (int head = 0; head < t->query_heads; ++head) {
      float* scores = walk_of(t, row, head)->scores;
      const int begin = t->first[row] > page_begin * kPage ? t->first[row] : page_begin * kPage;
      for (int i = begin; i < page_end * kPage && i <= t->position[row]; ++i) {
        scores[i] = score(kv, t, row, head, i);
      }
    }
  }
}

void attend_weights(const AttendTask* t, int row, int head) {
  const LongWalk* walk = walk_of(t, row, head);
  Softmax softmax;
  for (int page = t->first[row] / kPage; page * kPage <= t->position[row]; ++page) {
    walk->rescale[page] = softmax.soften(walk->scores + static_cast<int64_t>(page) * kPage, seen_in(t, row, page * kPage));
  }
  *walk->inverse = 1.0f / softmax.l;
}

void attend_values(const KvLayer* kv, const AttendTask* t, int d_begin, int d_end) {
  const int end = d_end < kv->head_dim ? d_end : kv->head_dim;
  for (int row = 0; row < t->rows; ++row) {
    for (int head = 0; head < t->query_heads; ++head) {
      const LongWalk* walk = walk_of(t, row, head);
      float* out = t->out[row] + static_cast<int64_t>(head) * kv->head_dim;
      for (int d = d_begin; d < end; ++d) out[d] = 0.0f;
      for (int page = t->first[row] / kPage; page * kPage <= t->position[row]; ++page) {
        const float* e = walk->scores + static_cast<int64_t>(page) * kPage;
        add_values(kv, t, row, page * kPage, e, walk->rescale[page], d_begin, end, out);
      }
      for (int d = d_begin; d < end; ++d) out[d] = out[d] * *walk->inverse;
    }
  }
}

}  // namespace

const Attention kAttention = {store_k, store_v, attend, attend_scores, attend_weights, attend_values};

}  // namespace offramp::portable
