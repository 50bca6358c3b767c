// Attention over any vector width. Included once by each instruction-set file, inside its anonymous namespace and after
// it has defined `Simd`; not a header to share code through.
//
// Every load of K (transposed, so lanes are positions) and of V serves all rows of the tile and all query heads of the
// group, as many at a time as registers hold: the walk is bound by the bytes of K and V for one row and by the
// multiply-adds (two products per position, value and query head) for many.

using V = Simd::V;
constexpr int kWidth = Simd::kWidth;
constexpr int kLine = 64;  // bytes of a cache line

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

// The row sees nothing of the page that begins at position `first`.
bool is_outside(const AttendTask* t, int row, int first) {
  return first > t->position[row] || first + kPage <= t->first[row];
}

// All positions that the row sees in the page [first, first + 32) sit in the slots of their own number.
bool is_direct(const AttendTask* t, int row, int first) {
  const int last = t->position[row] < first + kPage - 1 ? t->position[row] : first + kPage - 1;
  if (last < t->position[row]) return last < t->prefix_len[row];
  return t->prefix_len[row] == last && t->slot[row] == last;
}

// The positions that it sees there, counted from `first`.
Span seen_in(const AttendTask* t, int row, int first) {
  const int begin = t->first[row] - first;
  const int end = t->position[row] - first + 1;
  return {begin > 0 ? begin : 0, end < kPage ? end : kPage};
}

// Stored values as they are read: f16 is widened on the way. `next` is where the next page begins, which is fetched while
// this one is at work, a line now and then: the hardware's own prefetching stops at every 4 KiB, as long as a page of one
// head often is, and a burst of prefetches holds up the loads behind it (measured: no gain; so, 1.6 times the speed).
struct F32Values {
  static constexpr int kBytes = 4;
  const float* at;
  const char* next = nullptr;
  V load(int64_t i) const { return Simd::load(at + i); }
};

struct F16Values {
  static constexpr int kBytes = 2;
  const uint16_t* at;
  const char* next = nullptr;
  V load(int64_t i) const { return Simd::load_f16(at + i); }
};

void fetch(const char* from, int64_t at, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kLine) _mm_prefetch(from + at + i, _MM_HINT_T0);
}

// [rows][width] of f16 -> f32, columns of the span.
void widen(const uint16_t* source, int rows, int64_t width, Span columns, float* target) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t at = row * width + columns.begin; at < row * width + columns.end; at += kLanes) {
      _mm256_storeu_ps(target + at, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at))));
    }
  }
}

// The same, collected from the slots of a tree row's ancestors.
const float* gathered_k(const KvLayer* kv, const AttendTask* t, int row, int first, float* buffer) {
  const Span seen = seen_in(t, row, first);
  for (int i = seen.begin; i < seen.end; ++i) {
    const int slot = slot_of(t, row, first + i);
    const int64_t at = k_base(kv, t->pages[slot / kPage], t->kv_head) + slot % kPage;
    for (int d = 0; d < kv->head_dim; ++d) buffer[d * kPage + i] = load(kv, kv->k, at + static_cast<int64_t>(d) * kPage);
  }
  return buffer;
}

const float* gathered_v(const KvLayer* kv, const AttendTask* t, int row, int first, float* buffer) {
  const Span seen = seen_in(t, row, first);
  for (int i = seen.begin; i < seen.end; ++i) {
    const int slot = slot_of(t, row, first + i);
    const int64_t at = v_base(kv, t->pages[slot / kPage], t->kv_head) + static_cast<int64_t>(slot % kPage) * kv->head_pad;
    for (int d = 0; d < kv->head_dim; ++d) buffer[i * kv->head_pad + d] = load(kv, kv->v, at + d);
  }
  return buffer;
}

// One query head of one row, and one page.
struct Query {
  const float* q;
  float* scores;  // [32], then the weights
  float* state;   // [head_pad], the weighted values so far
  float rescale;
  Span seen;  // visible positions of the page
};

// Queries that share every load of K and V, and vectors of positions or columns at a time: as many sums as registers hold.
constexpr int kTogether = kWidth == 16 ? 8 : 6;
constexpr int kAbreast = 2;

// scores[i] = fold8(p) * scale, p[d mod 8] summed over ascending d, for all 32 positions of the page.
template <int C, class Values>
void score_together(Values k, const Query* queries, int head_dim, float scale) {
  alignas(64) float partial[C][8][kAbreast * kWidth];
  const int64_t each = static_cast<int64_t>(head_dim) * kAbreast * kWidth * Values::kBytes / 8;
  for (int at = 0; at < kPage; at += kAbreast * kWidth) {
    for (int j = 0; j < 8; ++j) {
      if (k.next) fetch(k.next, (at / (kAbreast * kWidth) * 8 + j) * each, each);
      V p[C][kAbreast];
      for (int c = 0; c < C; ++c)
        for (int n = 0; n < kAbreast; ++n) p[c][n] = Simd::zero();
      for (int d = j; d < head_dim; d += 8) {
        V values[kAbreast];
        for (int n = 0; n < kAbreast; ++n) values[n] = k.load(d * kPage + at + n * kWidth);
        for (int c = 0; c < C; ++c) {
          const V x = Simd::set(queries[c].q[d]);
          for (int n = 0; n < kAbreast; ++n) p[c][n] = mul_add(p[c][n], x, values[n]);
        }
      }
      for (int c = 0; c < C; ++c)
        for (int n = 0; n < kAbreast; ++n) Simd::store(partial[c][j] + n * kWidth, p[c][n]);
    }
    for (int c = 0; c < C; ++c) {
      for (int i = 0; i < kAbreast * kWidth; i += kWidth) {
        const auto p = [&](int j) { return Simd::load(partial[c][j] + i); };
        const V even = Simd::add(Simd::add(p(0), p(4)), Simd::add(p(2), p(6)));
        const V odd = Simd::add(Simd::add(p(1), p(5)), Simd::add(p(3), p(7)));
        Simd::store(queries[c].scores + at + i, Simd::mul(Simd::add(even, odd), Simd::set(scale)));
      }
    }
  }
}

template <int C, class Values>
void score_tiles(Values k, const Query* queries, int n, int head_dim, float scale) {
  while (n >= C) {
    score_together<C>(k, queries, head_dim, scale);
    k.next = nullptr;
    queries += C;
    n -= C;
  }
  if constexpr (C > 1) {
    if (n > 0) score_tiles<C - 1>(k, queries, n, head_dim, scale);
  }
}

// state = state * rescale + the weighted values of the positions that all see, for N vectors of columns from `at` on.
template <int C, int N, class Values>
void weigh_together(Values v, int head_pad, int at, const Query* queries, Span common) {
  V acc[C][N];
  for (int c = 0; c < C; ++c)
    for (int n = 0; n < N; ++n) {
      acc[c][n] = Simd::mul(Simd::load(queries[c].state + at + n * kWidth), Simd::set(queries[c].rescale));
    }
  const bool fetches = v.next && at * Values::kBytes % kLine == 0;  // else the line came with the columns before
  for (int i = common.begin; i < common.end; ++i) {
    if (fetches) fetch(v.next, (static_cast<int64_t>(i) * head_pad + at) * Values::kBytes, N * kWidth * Values::kBytes);
    V values[N];
    for (int n = 0; n < N; ++n) values[n] = v.load(static_cast<int64_t>(i) * head_pad + at + n * kWidth);
    for (int c = 0; c < C; ++c) {
      const V weight = Simd::set(queries[c].scores[i]);
      for (int n = 0; n < N; ++n) acc[c][n] = mul_add(acc[c][n], weight, values[n]);
    }
  }
  for (int c = 0; c < C; ++c)
    for (int n = 0; n < N; ++n) Simd::store(queries[c].state + at + n * kWidth, acc[c][n]);
}

// Positions from `common` on, which only some of the queries see.
template <class Values>
void weigh_rest(Values v, int head_pad, int at, int columns, const Query& query, int common) {
  for (int i = common; i < query.seen.end; ++i) {
    const V weight = Simd::set(query.scores[i]);
    for (int d = at; d < at + columns; d += kWidth) {
      const V acc = Simd::load(query.state + d);
      Simd::store(query.state + d, mul_add(acc, weight, v.load(static_cast<int64_t>(i) * head_pad + d)));
    }
  }
}

template <int C, int N, class Values>
void weigh_tiles(Values v, int head_pad, int at, const Query* queries, int n) {
  while (n >= C) {
    Span common = queries[0].seen;
    bool begin_together = true;
    for (int c = 1; c < C; ++c) {
      common.end = queries[c].seen.end < common.end ? queries[c].seen.end : common.end;
      begin_together = begin_together && queries[c].seen.begin == common.begin;
    }
    if (begin_together) {
      weigh_together<C, N>(v, head_pad, at, queries, common);
      v.next = nullptr;
      for (int c = 0; c < C; ++c) weigh_rest(v, head_pad, at, N * kWidth, queries[c], common.end);
    } else {  // at the edge of a window
      for (int c = 0; c < C; ++c) weigh_together<1, N>(v, head_pad, at, queries + c, queries[c].seen);
    }
    queries += C;
    n -= C;
  }
  if constexpr (C > 1) {
    if (n > 0) weigh_tiles<C - 1, N>(v, head_pad, at, queries, n);
  }
}

// Columns d of the span (a multiple of 8 wide) of all queries.
template <class Values>
void page_values(Values v, int head_pad, Span d, const Query* queries, int n) {
  int at = d.begin;
  for (; at + kAbreast * kWidth <= d.end; at += kAbreast * kWidth) weigh_tiles<kTogether, kAbreast>(v, head_pad, at, queries, n);
  for (; at + kWidth <= d.end; at += kWidth) weigh_tiles<kTogether, 1>(v, head_pad, at, queries, n);
}

// Half a vector is left where the width is 16.
template <class Scalar>
void last_values(Scalar value, int head_pad, Span d, const Query* queries, int n) {
  for (int at = d.begin + (d.end - d.begin) / kWidth * kWidth; at < d.end; ++at) {
    for (int c = 0; c < n; ++c) {
      float acc = queries[c].state[at] * queries[c].rescale;
      for (int i = queries[c].seen.begin; i < queries[c].seen.end; ++i) acc = acc + queries[c].scores[i] * value(static_cast<int64_t>(i) * head_pad + at);
      queries[c].state[at] = acc;
    }
  }
}

// Where a page begins for the task's head; null for none (a negative one).
const char* k_page(const KvLayer* kv, const AttendTask* t, int page) {
  return page < 0 ? nullptr : static_cast<const char*>(kv->k) + k_base(kv, page, t->kv_head) * (kv->is_f16 ? 2 : 4);
}

const char* v_page(const KvLayer* kv, const AttendTask* t, int page) {
  return page < 0 ? nullptr : static_cast<const char*>(kv->v) + v_base(kv, page, t->kv_head) * (kv->is_f16 ? 2 : 4);
}

// The page behind this one of the task; -1 where it ends.
int page_behind(const AttendTask* t, int page, int end) { return page + 1 < end ? t->pages[page + 1] : -1; }

// f16 is widened once for all queries where registers are too few to share its loads; those of AVX2 hold as many sums as
// it takes to make that a loss.
bool widens(int n) { return kWidth == 16 && n > kTogether; }

// A page as stored, for queries that read it there; `next` is the one to fetch.
void stored_scores(const KvLayer* kv, const AttendTask* t, int page, int next, const Query* queries, int n, float* buffer) {
  const int64_t at = k_base(kv, page, t->kv_head);
  const char* ahead = k_page(kv, t, next);
  if (!kv->is_f16) {
    score_tiles<kTogether>(F32Values{static_cast<const float*>(kv->k) + at, ahead}, queries, n, kv->head_dim, t->scale);
    return;
  }
  const uint16_t* source = static_cast<const uint16_t*>(kv->k) + at;
  if (!widens(n)) {
    score_tiles<kTogether>(F16Values{source, ahead}, queries, n, kv->head_dim, t->scale);
    return;
  }
  widen(source, kv->head_dim, kPage, {0, kPage}, buffer);
  score_tiles<kTogether>(F32Values{buffer}, queries, n, kv->head_dim, t->scale);
}

void own_values(const KvLayer* kv, Span d, F32Values v, const Query* queries, int n) {
  page_values(v, kv->head_pad, d, queries, n);
  last_values([v](int64_t i) { return v.at[i]; }, kv->head_pad, d, queries, n);
}

void stored_values(const KvLayer* kv, const AttendTask* t, int page, int next, Span d, const Query* queries, int n, float* buffer) {
  const int64_t at = v_base(kv, page, t->kv_head);
  const char* ahead = v_page(kv, t, next);
  if (!kv->is_f16) {
    own_values(kv, d, {static_cast<const float*>(kv->v) + at, ahead}, queries, n);
    return;
  }
  const uint16_t* source = static_cast<const uint16_t*>(kv->v) + at;
  if (!widens(n)) {
    page_values(F16Values{source, ahead}, kv->head_pad, d, queries, n);
    last_values([source](int64_t i) { return _cvtsh_ss(source[i]); }, kv->head_pad, d, queries, n);
    return;
  }
  widen(source, kPage, kv->head_pad, d, buffer);
  own_values(kv, d, {buffer}, queries, n);
}

// The online softmax of one (row, query head).
struct Softmax {
  float m = -__builtin_huge_valf();
  float l = 0.0f;

  // Turns a page's scores into weights, 0 outside `seen`; returns the factor for what was summed before.
  float soften(float* e, Span seen) {
    const float top = Simd::largest(e, seen.begin, seen.end, m);
    float rescale = 1.0f;
    if (m != -__builtin_huge_valf()) {
      rescale = Simd::exp_of(m - top);
      l = l * rescale;
    }
    l = l + weights(e, seen, top);
    m = top;
    return rescale;
  }

  // exp(score - top), and their sum.
  static float weights(float* e, Span seen, float top) {
    for (int i = 0; i < kPage; i += kWidth) {
      const V value = Simd::exp(Simd::sub(Simd::load(e + i), Simd::set(top)));
      Simd::store(e + i, Simd::between(value, seen.begin - i, seen.end - i));
    }
    __m256 sums = _mm256_setzero_ps();
    for (int i = 0; i < kPage; i += kLanes) sums = _mm256_add_ps(sums, _mm256_loadu_ps(e + i));
    return fold8(sums);
  }
};

int last_position(const AttendTask* t) {
  int last = 0;
  for (int row = 0; row < t->rows; ++row) last = last > t->position[row] ? last : t->position[row];
  return last;
}

int first_position(const AttendTask* t) {
  int first = t->first[0];
  for (int row = 1; row < t->rows; ++row) first = first < t->first[row] ? first : t->first[row];
  return first;
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

// The queries of a row on a page that begins at position `first`.
int put_queries(const KvLayer* kv, const AttendTask* t, int row, int first, float* states, Query* queries) {
  const Span seen = seen_in(t, row, first);
  for (int head = 0; head < t->query_heads; ++head) {
    const int64_t index = static_cast<int64_t>(row) * t->query_heads + head;
    queries[head] = {t->q[row] + static_cast<int64_t>(head) * kv->head_dim, nullptr, states + index * kv->head_pad, 1.0f, seen};
  }
  return t->query_heads;
}

// Many rows: one walk over the pages.
void attend(const KvLayer* kv, const AttendTask* t) {
  const Scratch s(kv, t->scratch);
  const Span all = {0, kv->head_pad};
  Softmax softmax[kRowTile * kMaxGroup];
  Query queries[kRowTile * kMaxGroup];
  Softmax* owners[kRowTile * kMaxGroup];
  alignas(64) float e[kRowTile * kMaxGroup][kPage];
  for (int64_t i = 0; i < static_cast<int64_t>(t->rows) * t->query_heads * kv->head_pad; ++i) s.states[i] = 0.0f;
  const auto add = [&](int row, int first, int n) {
    const int more = put_queries(kv, t, row, first, s.states, queries + n);
    for (int head = 0; head < more; ++head) {
      queries[n + head].scores = e[n + head];
      owners[n + head] = softmax + row * t->query_heads + head;
    }
    return n + more;
  };
  const auto soften = [&](int n) {
    for (int i = 0; i < n; ++i) queries[i].rescale = owners[i]->soften(queries[i].scores, queries[i].seen);
  };
  const int last = last_position(t);
  for (int first = first_position(t) / kPage * kPage; first <= last; first += kPage) {
    int n = 0;
    for (int row = 0; row < t->rows; ++row) {
      if (is_outside(t, row, first)) continue;
      if (is_direct(t, row, first)) {
        n = add(row, first, n);
        continue;
      }
      Query* const own = queries + n;  // after the shared ones, which are not complete yet
      const int heads = add(row, first, n) - n;
      score_tiles<kTogether>(F32Values{gathered_k(kv, t, row, first, s.k_own)}, own, heads, kv->head_dim, t->scale);
      for (int i = n; i < n + heads; ++i) queries[i].rescale = owners[i]->soften(queries[i].scores, queries[i].seen);
      own_values(kv, all, {gathered_v(kv, t, row, first, s.v_own)}, own, heads);
    }
    if (n == 0) continue;
    const int page = first / kPage, next = page_behind(t, page, last / kPage + 1);
    stored_scores(kv, t, t->pages[page], next, queries, n, s.k_shared);
    soften(n);
    stored_values(kv, t, t->pages[page], next, all, queries, n, s.v_shared);
  }
  for (int row = 0; row < t->rows; ++row) {
    for (int head = 0; head < t->query_heads; ++head) {
      const int index = row * t->query_heads + head;
      finish(t, kv, row, head, all, s.states + static_cast<int64_t>(index) * kv->head_pad, 1.0f / softmax[index].l);
    }
  }
}

// The same queries in a long walk, whose scores and factors are kept.
int put_walk(const KvLayer* kv, const AttendTask* t, int row, int page, float* states, Query* queries) {
  const int n = put_queries(kv, t, row, page * kPage, states, queries);
  for (int head = 0; head < n; ++head) {
    const LongWalk* walk = walk_of(t, row, head);
    queries[head].scores = walk->scores + static_cast<int64_t>(page) * kPage;
    queries[head].rescale = walk->rescale[page];
  }
  return n;
}

// Few rows, long context, in three passes that threads share out: by pages, by heads, by columns of V.
void attend_scores(const KvLayer* kv, const AttendTask* t, int first_page, int last_page) {
  const Scratch s(kv, t->scratch);
  Query queries[kRowTile * kMaxGroup];
  for (int page = first_page; page < last_page; ++page) {
    int n = 0;
    for (int row = 0; row < t->rows; ++row) {
      if (is_outside(t, row, page * kPage)) continue;
      const int more = put_walk(kv, t, row, page, s.states, queries + n);
      if (is_direct(t, row, page * kPage)) {
        n += more;
        continue;
      }
      const float* k = gathered_k(kv, t, row, page * kPage, s.k_own);
      score_tiles<kTogether>(F32Values{k}, queries + n, more, kv->head_dim, t->scale);
    }
    if (n > 0) stored_scores(kv, t, t->pages[page], page_behind(t, page, last_page), queries, n, s.k_shared);
  }
}

// Factors of sixteen pages at a time: one exp for all of them.
void attend_weights(const AttendTask* t, int row, int head) {
  constexpr int kPages = 16;
  const LongWalk* walk = walk_of(t, row, head);
  const int pages = t->position[row] / kPage + 1;
  float m = -__builtin_huge_valf();
  float l = 0.0f;
  for (int begin = t->first[row] / kPage; begin < pages; begin += kPages) {
    const int n = pages - begin < kPages ? pages - begin : kPages;
    alignas(64) float tops[kPages], drops[kPages] = {};
    for (int i = 0; i < n; ++i) {
      const int page = begin + i;
      const Span seen = seen_in(t, row, page * kPage);
      tops[i] = Simd::largest(walk->scores + static_cast<int64_t>(page) * kPage, seen.begin, seen.end, m);
      drops[i] = m == -__builtin_huge_valf() ? 0.0f : m - tops[i];  // exp(0) is 1
      m = tops[i];
    }
    for (int i = 0; i < kPages; i += kWidth) Simd::store(drops + i, Simd::exp(Simd::load(drops + i)));
    for (int i = 0; i < n; ++i) {
      const int page = begin + i;
      float* e = walk->scores + static_cast<int64_t>(page) * kPage;
      walk->rescale[page] = drops[i];
      l = l * drops[i];
      l = l + Softmax::weights(e, seen_in(t, row, page * kPage), tops[i]);
    }
  }
  *walk->inverse = 1.0f / l;
}

void attend_values(const KvLayer* kv, const AttendTask* t, int d_begin, int d_end) {
  const Scratch s(kv, t->scratch);
  const Span d = {d_begin, d_end};
  Query queries[kRowTile * kMaxGroup];
  for (int64_t i = 0; i < static_cast<int64_t>(t->rows) * t->query_heads * kv->head_pad; ++i) s.states[i] = 0.0f;
  const int last = last_position(t);
  for (int page = first_position(t) / kPage; page * kPage <= last; ++page) {
    int n = 0;
    for (int row = 0; row < t->rows; ++row) {
      if (is_outside(t, row, page * kPage)) continue;
      const int more = put_walk(kv, t, row, page, s.states, queries + n);
      if (is_direct(t, row, page * kPage)) {
        n += more;
        continue;
      }
      own_values(kv, d, {gathered_v(kv, t, row, page * kPage, s.v_own)}, queries + n, more);
    }
    if (n > 0) stored_values(kv, t, t->pages[page], page_behind(t, page, last / kPage + 1), d, queries, n, s.v_shared);
  }
  for (int row = 0; row < t->rows; ++row) {
    for (int head = 0; head < t->query_heads; ++head) {
      const float* state = s.states + (static_cast<int64_t>(row) * t->query_heads + head) * kv->head_pad;
      finish(t, kv, row, head, d, state, *walk_of(t, row, head)->inverse);
    }
  }
}
