// Attention over any vector width. Included once by each instruction-set file, inside its anonymous namespace and after
// it has defined `Simd`; not a header to share code through.
//
// A page of K (transposed, so lanes are positions) and of V is widened to f32 once and used by all rows of the tile and
// all query heads of the group: the walk is bound by the bytes of K and V for one row and by the multiply-adds (two
// products per position, value and query head) for many.

using V = Simd::V;
constexpr int kWidth = Simd::kWidth;

struct Span {
  int begin;
  int end;
};

V mul_add(V acc, V a, V b) { return Simd::add(acc, Simd::mul(a, b)); }

int64_t k_base(const KvLayer* kv, int page, int head) {
  return (static_cast<int64_t>(page) * kv->kv_heads + head) * kv->head_dim * kPage;
}

int64_t v_base(const KvLayer* kv, int page, int head) {
  return (static_cast<int64_t>(page) * kv->kv_heads + head) * kPage * kv->head_pad;
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

void store_k(const KvLayer* kv, int page, int offset, int kv_head, const float* k) {
  const int64_t base = k_base(kv, page, kv_head) + offset;
  for (int d = 0; d < kv->head_dim; ++d) store(kv, kv->k, base + static_cast<int64_t>(d) * kPage, k[d]);
}

void store_v(const KvLayer* kv, int page, int offset, int kv_head, const float* v) {
  const int64_t base = v_base(kv, page, kv_head) + static_cast<int64_t>(offset) * kv->head_pad;
  for (int d = 0; d < kv->head_dim; ++d) store(kv, kv->v, base + d, v[d]);
}

int slot_of(const AttendTask* t, int row, int position) {
  if (position == t->position[row]) return t->slot[row];
  if (position < t->prefix_len[row]) return position;
  return t->ancestors[row][position - t->prefix_len[row]];
}

// All positions that the row sees in the page [first, first + 32) sit in the slots of their own number.
bool is_direct(const AttendTask* t, int row, int first) {
  const int last = t->position[row] < first + kPage - 1 ? t->position[row] : first + kPage - 1;
  if (last < t->position[row]) return last < t->prefix_len[row];
  return t->prefix_len[row] == last && t->slot[row] == last;
}

int visible_in(const AttendTask* t, int row, int first) {
  const int count = t->position[row] - first + 1;
  return count < kPage ? count : kPage;
}

void widen(const uint16_t* source, float* target, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) Simd::store(target + i, Simd::load_f16(source + i));
}

// K of a page as stored, [head_dim][32]; f16 is widened into the buffer.
const float* stored_k(const KvLayer* kv, int page, int head, float* buffer) {
  const int64_t at = k_base(kv, page, head);
  if (!kv->is_f16) return static_cast<const float*>(kv->k) + at;
  widen(static_cast<const uint16_t*>(kv->k) + at, buffer, static_cast<int64_t>(kv->head_dim) * kPage);
  return buffer;
}

// V of a page, columns d of the span, [32][head_pad]; f16 is widened into the buffer.
const float* stored_v(const KvLayer* kv, int page, int head, Span d, float* buffer) {
  const int64_t at = v_base(kv, page, head);
  if (!kv->is_f16) return static_cast<const float*>(kv->v) + at;
  const uint16_t* source = static_cast<const uint16_t*>(kv->v) + at;
  for (int i = 0; i < kPage; ++i) {
    const int64_t row = static_cast<int64_t>(i) * kv->head_pad;
    for (int at_d = d.begin; at_d < d.end; at_d += kLanes) {
      _mm256_storeu_ps(buffer + row + at_d, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + row + at_d))));
    }
  }
  return buffer;
}

// The same, collected from the slots of a tree row's ancestors.
const float* gathered_k(const KvLayer* kv, const AttendTask* t, int row, int first, float* buffer) {
  for (int i = 0; i < visible_in(t, row, first); ++i) {
    const int slot = slot_of(t, row, first + i);
    const int64_t at = k_base(kv, t->pages[slot / kPage], t->kv_head) + slot % kPage;
    for (int d = 0; d < kv->head_dim; ++d) buffer[d * kPage + i] = load(kv, kv->k, at + static_cast<int64_t>(d) * kPage);
  }
  return buffer;
}

const float* gathered_v(const KvLayer* kv, const AttendTask* t, int row, int first, float* buffer) {
  for (int i = 0; i < visible_in(t, row, first); ++i) {
    const int slot = slot_of(t, row, first + i);
    const int64_t at = v_base(kv, t->pages[slot / kPage], t->kv_head) + static_cast<int64_t>(slot % kPage) * kv->head_pad;
    for (int d = 0; d < kv->head_dim; ++d) buffer[i * kv->head_pad + d] = load(kv, kv->v, at + d);
  }
  return buffer;
}

// scores[i] = fold8(p) * scale, p[d mod 8] summed over ascending d, for all 32 positions of the page.
void page_scores(const float* k, const float* q, int head_dim, float scale, float* scores) {
  constexpr int kVectors = kPage / kWidth;
  alignas(64) float partial[8 * kPage];
  for (int j = 0; j < 8; ++j) {
    V p[kVectors];
    for (int n = 0; n < kVectors; ++n) p[n] = Simd::zero();
    for (int d = j; d < head_dim; d += 8) {
      const V x = Simd::set(q[d]);
      for (int n = 0; n < kVectors; ++n) p[n] = mul_add(p[n], x, Simd::load(k + d * kPage + n * kWidth));
    }
    for (int n = 0; n < kVectors; ++n) Simd::store(partial + j * kPage + n * kWidth, p[n]);
  }
  for (int i = 0; i < kPage; i += kWidth) {
    const auto p = [&](int j) { return Simd::load(partial + j * kPage + i); };
    const V even = Simd::add(Simd::add(p(0), p(4)), Simd::add(p(2), p(6)));
    const V odd = Simd::add(Simd::add(p(1), p(5)), Simd::add(p(3), p(7)));
    Simd::store(scores + i, Simd::mul(Simd::add(even, odd), Simd::set(scale)));
  }
}

// The online softmax of one (row, query head).
struct Softmax {
  float m = -__builtin_huge_valf();
  float l = 0.0f;

  // Turns a page's scores into weights, 0 from `count` on; returns the factor for what was summed before.
  float soften(float* e, int count) {
    float top = m;
    for (int i = 0; i < count; ++i) top = top > e[i] ? top : e[i];
    float rescale = 1.0f;
    if (m != -__builtin_huge_valf()) {
      rescale = Simd::exp_of(m - top);
      l = l * rescale;
    }
    for (int i = 0; i < kPage; i += kWidth) {
      const V value = Simd::exp(Simd::sub(Simd::load(e + i), Simd::set(top)));
      Simd::store(e + i, Simd::first(value, count - i));
    }
    __m256 sums = _mm256_setzero_ps();
    for (int i = 0; i < kPage; i += kLanes) sums = _mm256_add_ps(sums, _mm256_loadu_ps(e + i));
    l = l + fold8(sums);
    m = top;
    return rescale;
  }
};

template <int N>
void weigh(const float* v, int head_pad, const float* e, int count, V rescale, float* out) {
  V acc[N];
  for (int n = 0; n < N; ++n) acc[n] = Simd::mul(Simd::load(out + n * kWidth), rescale);
  for (int i = 0; i < count; ++i) {
    const V weight = Simd::set(e[i]);
    for (int n = 0; n < N; ++n) acc[n] = mul_add(acc[n], weight, Simd::load(v + static_cast<int64_t>(i) * head_pad + n * kWidth));
  }
  for (int n = 0; n < N; ++n) Simd::store(out + n * kWidth, acc[n]);
}

// out[d] = out[d] * rescale + the page's weighted values, for columns d of the span (a multiple of 8 wide).
void page_values(const float* v, int head_pad, Span d, const float* e, int count, float rescale, float* out) {
  constexpr int kWide = 64 / kWidth;
  int at = d.begin;
  for (; at + 64 <= d.end; at += 64) weigh<kWide>(v + at, head_pad, e, count, Simd::set(rescale), out + at);
  for (; at + 32 <= d.end; at += 32) weigh<kWide / 2>(v + at, head_pad, e, count, Simd::set(rescale), out + at);
  for (; at + kWidth <= d.end; at += kWidth) weigh<1>(v + at, head_pad, e, count, Simd::set(rescale), out + at);
  for (; at < d.end; ++at) {  // half a vector is left where the width is 16
    float acc = out[at] * rescale;
    for (int i = 0; i < count; ++i) acc = acc + e[i] * v[static_cast<int64_t>(i) * head_pad + at];
    out[at] = acc;
  }
}

int last_position(const AttendTask* t) {
  int last = 0;
  for (int row = 0; row < t->rows; ++row) last = last > t->position[row] ? last : t->position[row];
  return last;
}

// Scratch of one task: shared and own pages of K and V, then states [rows][heads][head_pad].
struct Scratch {
  float *k_shared, *v_shared, *k_own, *v_own, *states;

  Scratch(const KvLayer* kv, float* base) {
    k_shared = base;
    v_shared = k_shared + static_cast<int64_t>(kPage) * kv->head_dim;
    k_own = v_shared + static_cast<int64_t>(kPage) * kv->head_pad;
    v_own = k_own + static_cast<int64_t>(kPage) * kv->head_dim;
    states = v_own + static_cast<int64_t>(kPage) * kv->head_pad;
  }
};

void finish(const AttendTask* t, const KvLayer* kv, int row, int head, Span d, const float* state, float inverse) {
  float* out = t->out[row] + static_cast<int64_t>(head) * kv->head_dim;
  const int end = d.end < kv->head_dim ? d.end : kv->head_dim;
  for (int i = d.begin; i < end; ++i) out[i] = state[i] * inverse;
}

// Many rows: one walk over the pages.
void attend(const KvLayer* kv, const AttendTask* t) {
  const Scratch s(kv, t->scratch);
  const Span all = {0, kv->head_pad};
  Softmax softmax[kRowTile * kMaxGroup];
  for (int64_t i = 0; i < static_cast<int64_t>(t->rows) * t->query_heads * kv->head_pad; ++i) s.states[i] = 0.0f;
  const int last = last_position(t);
  for (int first = 0; first <= last; first += kPage) {
    const float* k_shared = nullptr;
    const float* v_shared = nullptr;
    for (int row = 0; row < t->rows; ++row) {
      if (first > t->position[row]) continue;
      const int count = visible_in(t, row, first);
      const bool direct = is_direct(t, row, first);
      if (direct && !k_shared) {
        k_shared = stored_k(kv, t->pages[first / kPage], t->kv_head, s.k_shared);
        v_shared = stored_v(kv, t->pages[first / kPage], t->kv_head, all, s.v_shared);
      }
      const float* k = direct ? k_shared : gathered_k(kv, t, row, first, s.k_own);
      const float* v = direct ? v_shared : gathered_v(kv, t, row, first, s.v_own);
      for (int head = 0; head < t->query_heads; ++head) {
        const int index = row * t->query_heads + head;
        alignas(64) float e[kPage];
        page_scores(k, t->q[row] + static_cast<int64_t>(head) * kv->head_dim, kv->head_dim, t->scale, e);
        const float rescale = softmax[index].soften(e, count);
        page_values(v, kv->head_pad, all, e, count, rescale, s.states + static_cast<int64_t>(index) * kv->head_pad);
      }
    }
  }
  for (int row = 0; row < t->rows; ++row) {
    for (int head = 0; head < t->query_heads; ++head) {
      const int index = row * t->query_heads + head;
      finish(t, kv, row, head, all, s.states + static_cast<int64_t>(index) * kv->head_pad, 1.0f / softmax[index].l);
    }
  }
}

// Few rows, long context, in three passes that threads share out: by pages, by heads, by columns of V.
void attend_scores(const KvLayer* kv, const AttendTask* t, int first_page, int last_page) {
  const Scratch s(kv, t->scratch);
  for (int page = first_page; page < last_page; ++page) {
    const float* shared = nullptr;
    for (int row = 0; row < t->rows; ++row) {
      if (page * kPage > t->position[row]) continue;
      const bool direct = is_direct(t, row, page * kPage);
      if (direct && !shared) shared = stored_k(kv, t->pages[page], t->kv_head, s.k_shared);
      const float* k = direct ? shared : gathered_k(kv, t, row, page * kPage, s.k_own);
      for (int head = 0; head < t->query_heads; ++head) {
        page_scores(k, t->q[row] + static_cast<int64_t>(head) * kv->head_dim, kv->head_dim, t->scale,
                    walk_of(t, row, head)->scores + static_cast<int64_t>(page) * kPage);
      }
    }
  }
}

void attend_weights(const AttendTask* t, int row, int head) {
  const LongWalk* walk = walk_of(t, row, head);
  Softmax softmax;
  for (int page = 0; page * kPage <= t->position[row]; ++page) {
    walk->rescale[page] = softmax.soften(walk->scores + static_cast<int64_t>(page) * kPage, visible_in(t, row, page * kPage));
  }
  *walk->inverse = 1.0f / softmax.l;
}

void attend_values(const KvLayer* kv, const AttendTask* t, int d_begin, int d_end) {
  const Scratch s(kv, t->scratch);
  const Span d = {d_begin, d_end};
  for (int64_t i = 0; i < static_cast<int64_t>(t->rows) * t->query_heads * kv->head_pad; ++i) s.states[i] = 0.0f;
  const int last = last_position(t);
  for (int page = 0; page * kPage <= last; ++page) {
    const float* shared = nullptr;
    for (int row = 0; row < t->rows; ++row) {
      if (page * kPage > t->position[row]) continue;
      const bool direct = is_direct(t, row, page * kPage);
      if (direct && !shared) shared = stored_v(kv, t->pages[page], t->kv_head, d, s.v_shared);
      const float* v = direct ? shared : gathered_v(kv, t, row, page * kPage, s.v_own);
      for (int head = 0; head < t->query_heads; ++head) {
        const LongWalk* walk = walk_of(t, row, head);
        float* state = s.states + (static_cast<int64_t>(row) * t->query_heads + head) * kv->head_pad;
        page_values(v, kv->head_pad, d, walk->scores + static_cast<int64_t>(page) * kPage,
                    visible_in(t, row, page * kPage), walk->rescale[page], state);
      }
    }
  }
  for (int row = 0; row < t->rows; ++row) {
    for (int head = 0; head < t->query_heads; ++head) {
      const float* state = s.states + (static_cast<int64_t>(row) * t->query_heads + head) * kv->head_pad;
      finish(t, kv, row, head, d, state, *walk_of(t, row, head)->inverse);
    }
  }
}
