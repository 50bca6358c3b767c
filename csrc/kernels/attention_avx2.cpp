// K/V storage and attention, AVX2. A page of K (transposed, so lanes are positions) and of V is widened to f32 once and
// used by all rows of the tile and all query heads of the group: the walk is bound by the bytes of K and V for one row
// and by the multiply-adds (two products per position, value and query head) for many.
#include "avx2.h"

namespace offramp::avx2 {
namespace {

// A widened page: k [head_dim][32], v [32][head_pad].
struct Page {
  const float* k;
  const float* v;
};

// The online softmax of one (row, query head).
struct State {
  float* out;  // [head_pad]
  float* m;
  float* l;
};

int64_t k_base(const KvLayer* kv, int page, int head) {
  return (static_cast<int64_t>(page) * kv->kv_heads + head) * kv->head_dim * kPage;
}

int64_t v_base(const KvLayer* kv, int page, int head) {
  return (static_cast<int64_t>(page) * kv->kv_heads + head) * kPage * kv->head_pad;
}

void widen(const uint16_t* source, float* target, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) store8(target + i, load8_f16(source + i));
}

// The page as stored. f16 is widened into the buffers.
Page stored_page(const KvLayer* kv, int page, int head, float* k_buffer, float* v_buffer) {
  const int64_t k = k_base(kv, page, head);
  const int64_t v = v_base(kv, page, head);
  if (!kv->is_f16) return {static_cast<const float*>(kv->k) + k, static_cast<const float*>(kv->v) + v};
  widen(static_cast<const uint16_t*>(kv->k) + k, k_buffer, static_cast<int64_t>(kv->head_dim) * kPage);
  widen(static_cast<const uint16_t*>(kv->v) + v, v_buffer, static_cast<int64_t>(kPage) * kv->head_pad);
  return {k_buffer, v_buffer};
}

int slot_of(const AttendTask* t, int row, int position) {
  if (position == t->position[row]) return t->slot[row];
  if (position < t->prefix_len[row]) return position;
  return t->ancestors[row][position - t->prefix_len[row]];
}

float load(const KvLayer* kv, const void* base, int64_t index) {
  if (kv->is_f16) return _cvtsh_ss(static_cast<const uint16_t*>(base)[index]);
  return static_cast<const float*>(base)[index];
}

void store(const KvLayer* kv, void* base, int64_t index, float value) {
  if (kv->is_f16) {
    static_cast<uint16_t*>(base)[index] = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
  } else {
    static_cast<float*>(base)[index] = value;
  }
}

// A page of logical positions collected from the slots of a tree row's ancestors.
Page gathered_page(const KvLayer* kv, const AttendTask* t, int row, int first, int count, float* k_buffer,
                   float* v_buffer) {
  for (int i = 0; i < count; ++i) {
    const int slot = slot_of(t, row, first + i);
    const int64_t k = k_base(kv, t->pages[slot / kPage], t->kv_head) + slot % kPage;
    const int64_t v = v_base(kv, t->pages[slot / kPage], t->kv_head) + static_cast<int64_t>(slot % kPage) * kv->head_pad;
    for (int d = 0; d < kv->head_dim; ++d) {
      k_buffer[d * kPage + i] = load(kv, kv->k, k + static_cast<int64_t>(d) * kPage);
      v_buffer[i * kv->head_pad + d] = load(kv, kv->v, v + d);
    }
  }
  return {k_buffer, v_buffer};
}

// scores[i] = fold8(p) * scale, p[d mod 8] summed over ascending d, for all 32 positions of the page.
void page_scores(const float* k, const float* q, int head_dim, float scale, float* partial, float* scores) {
  for (int j = 0; j < 8; ++j) {
    __m256 p0 = _mm256_setzero_ps();
    __m256 p1 = p0;
    __m256 p2 = p0;
    __m256 p3 = p0;
    for (int d = j; d < head_dim; d += 8) {
      const __m256 x = _mm256_set1_ps(q[d]);
      const float* row = k + d * kPage;
      p0 = mul_add(p0, x, load8(row));
      p1 = mul_add(p1, x, load8(row + 8));
      p2 = mul_add(p2, x, load8(row + 16));
      p3 = mul_add(p3, x, load8(row + 24));
    }
    store8(partial + j * kPage, p0);
    store8(partial + j * kPage + 8, p1);
    store8(partial + j * kPage + 16, p2);
    store8(partial + j * kPage + 24, p3);
  }
  const __m256 factor = _mm256_set1_ps(scale);
  for (int i = 0; i < kPage; i += 8) {
    const float* p = partial + i;
    const __m256 even = _mm256_add_ps(_mm256_add_ps(load8(p), load8(p + 4 * kPage)),
                                      _mm256_add_ps(load8(p + 2 * kPage), load8(p + 6 * kPage)));
    const __m256 odd = _mm256_add_ps(_mm256_add_ps(load8(p + kPage), load8(p + 5 * kPage)),
                                     _mm256_add_ps(load8(p + 3 * kPage), load8(p + 7 * kPage)));
    store8(scores + i, _mm256_mul_ps(_mm256_add_ps(even, odd), factor));
  }
}

float largest_of(float top, const float* scores, int count) {
  for (int i = 0; i < count; ++i) top = top > scores[i] ? top : scores[i];
  return top;
}

template <int N>
void weigh_values(const float* v, int head_pad, const float* e, int count, float* out) {
  __m256 acc[N];
  for (int n = 0; n < N; ++n) acc[n] = load8(out + n * kLanes);
  for (int i = 0; i < count; ++i) {
    const __m256 weight = _mm256_set1_ps(e[i]);
    for (int n = 0; n < N; ++n) acc[n] = mul_add(acc[n], weight, load8(v + static_cast<int64_t>(i) * head_pad + n * kLanes));
  }
  for (int n = 0; n < N; ++n) store8(out + n * kLanes, acc[n]);
}

void add_page(const KvLayer* kv, Page page, const float* q, float scale, int count, float* partial, State s) {
  alignas(32) float e[kPage];
  page_scores(page.k, q, kv->head_dim, scale, partial, e);
  const float old = *s.m;
  const float top = largest_of(old, e, count);
  if (old != -__builtin_huge_valf()) {
    const __m256 a = exp8(_mm256_set1_ps(old - top));
    *s.l = *s.l * _mm256_cvtss_f32(a);
    for (int d = 0; d < kv->head_pad; d += kLanes) store8(s.out + d, _mm256_mul_ps(load8(s.out + d), a));
  }
  __m256 sums = _mm256_setzero_ps();
  for (int i = 0; i < count; i += kLanes) {
    const __m256 value = exp8(_mm256_sub_ps(load8(e + i), _mm256_set1_ps(top)));
    const __m256 visible = _mm256_and_ps(value, _mm256_castsi256_ps(first_lanes(count - i)));
    store8(e + i, visible);
    sums = _mm256_add_ps(sums, visible);
  }
  int d = 0;
  for (; d + 64 <= kv->head_pad; d += 64) weigh_values<8>(page.v + d, kv->head_pad, e, count, s.out + d);
  for (; d < kv->head_pad; d += kLanes) weigh_values<1>(page.v + d, kv->head_pad, e, count, s.out + d);
  *s.l = *s.l + fold8(sums);
  *s.m = top;
}

// All positions that the row sees in the page [first, first + 32) sit in the slots of their own number.
bool is_direct(const AttendTask* t, int row, int first) {
  const int last = t->position[row] < first + kPage - 1 ? t->position[row] : first + kPage - 1;
  if (last < t->position[row]) return last < t->prefix_len[row];
  return t->prefix_len[row] == last && t->slot[row] == last;
}

}  // namespace

void store_k(const KvLayer* kv, int page, int offset, int kv_head, const float* k) {
  const int64_t base = k_base(kv, page, kv_head) + offset;
  for (int d = 0; d < kv->head_dim; ++d) store(kv, kv->k, base + static_cast<int64_t>(d) * kPage, k[d]);
}

void store_v(const KvLayer* kv, int page, int offset, int kv_head, const float* v) {
  const int64_t base = v_base(kv, page, kv_head) + static_cast<int64_t>(offset) * kv->head_pad;
  for (int d = 0; d < kv->head_dim; ++d) store(kv, kv->v, base + d, v[d]);
}

void attend(const KvLayer* kv, const AttendTask* t) {
  const int heads = t->query_heads;
  const int64_t k_floats = static_cast<int64_t>(kPage) * kv->head_dim;
  const int64_t v_floats = static_cast<int64_t>(kPage) * kv->head_pad;
  float* k_shared = t->scratch;
  float* v_shared = k_shared + k_floats;
  float* k_own = v_shared + v_floats;
  float* v_own = k_own + k_floats;
  float* partial = v_own + v_floats;
  float* states = partial + 8 * kPage;
  const int64_t state_floats = kv->head_pad + 2;
  int last = 0;
  for (int row = 0; row < t->rows; ++row) last = last > t->position[row] ? last : t->position[row];
  for (int64_t i = 0; i < t->rows * heads; ++i) {
    float* state = states + i * state_floats;
    for (int d = 0; d < kv->head_pad; ++d) state[d] = 0.0f;
    state[kv->head_pad] = -__builtin_huge_valf();
    state[kv->head_pad + 1] = 0.0f;
  }
  for (int first = 0; first <= last; first += kPage) {
    Page shared = {nullptr, nullptr};
    for (int row = 0; row < t->rows; ++row) {
      if (first > t->position[row]) continue;
      const int visible = t->position[row] - first + 1;
      const int count = visible < kPage ? visible : kPage;
      Page page;
      if (is_direct(t, row, first)) {
        if (!shared.k) shared = stored_page(kv, t->pages[first / kPage], t->kv_head, k_shared, v_shared);
        page = shared;
      } else {
        page = gathered_page(kv, t, row, first, count, k_own, v_own);
      }
      for (int head = 0; head < heads; ++head) {
        float* state = states + (static_cast<int64_t>(row) * heads + head) * state_floats;
        add_page(kv, page, t->q[row] + head * kv->head_dim, t->scale, count, partial,
                 {state, state + kv->head_pad, state + kv->head_pad + 1});
      }
    }
  }
  for (int row = 0; row < t->rows; ++row) {
    for (int head = 0; head < heads; ++head) {
      const float* state = states + (static_cast<int64_t>(row) * heads + head) * state_floats;
      const float inverse = 1.0f / state[kv->head_pad + 1];
      float* out = t->out[row] + head * kv->head_dim;
      for (int d = 0; d < kv->head_dim; ++d) out[d] = state[d] * inverse;
    }
  }
}

}  // namespace offramp::avx2
