#include "automaton.h"

#include <algorithm>
#include <limits>

namespace offramp::suffix {
namespace {

constexpr size_t kFirst = 32;                // capacity of a new automaton, in states, edges and slots
constexpr size_t kMost = size_t{1} << 30;    // states or edges: ids are int32
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

// Slots are filled up to three quarters.
size_t slots_for(size_t edges) {
  size_t slots = kFirst;
  while (edges > slots / 4 * 3) slots *= 2;
  return slots;
}

template <typename T>
int64_t bytes_of(const std::vector<T>& items) {
  return static_cast<int64_t>(items.capacity() * sizeof(T));
}

}  // namespace

Automaton::Automaton(int64_t max_bytes, int32_t max_walk) : max_bytes_(max_bytes), max_walk_(max_walk) {
  states_.reserve(kFirst);
  edges_.reserve(kFirst);
  table_.assign(kFirst, kNone);
  states_.push_back({0, kNone, 0, 0, kNone});
}

int64_t Automaton::bytes() const { return bytes_of(states_) + bytes_of(edges_) + bytes_of(table_); }

size_t Automaton::slot_of(int32_t state, int32_t token) const {
  const size_t mask = table_.size() - 1;
  uint64_t mixed = (static_cast<uint64_t>(static_cast<uint32_t>(state)) << 32) | static_cast<uint32_t>(token);
  mixed *= 0x9E3779B97F4A7C15u;
  mixed ^= mixed >> 32;
  mixed *= 0xD6E8FEB86659FD93u;
  for (size_t slot = (mixed >> 32) & mask;; slot = (slot + 1) & mask) {
    const int32_t edge = table_[slot];
    if (edge == kNone || (edges_[edge].from == state && edges_[edge].token == token)) return slot;
  }
}

bool Automaton::extend(int32_t token) {
  // The suffixes of the text that were never followed by this token, longest first; then the first that was.
  size_t missing = 0;
  int32_t known = last_, found = kNone;
  for (; known != kNone; known = states_[known].link, ++missing)
    if ((found = follow(known, token)) != kNone) break;
  const bool fresh = missing > 0;
  const bool split = found != kNone && states_[found].len != states_[known].len + 1;
  // What is split may be one of those suffixes, and then has an edge more by the time it is copied.
  const size_t copied = split ? degree(found) + 1 : 0;
  if (num_tokens_ == kMostTokens || !reserve(size_t{fresh} + split, missing + copied)) return false;

  int32_t added = kNone;
  if (fresh) {
    added = static_cast<int32_t>(states_.size());
    states_.push_back({states_[last_].len + 1, kRoot, 0, 0, kNone});
    for (int32_t at = last_; at != known; at = states_[at].link) add_edge(at, token, added);
  }
  const int32_t suffix = found == kNone ? kRoot : split ? clone(known, token, found) : found;
  if (fresh) states_[added].link = suffix;
  last_ = fresh ? added : suffix;

  const int32_t position = static_cast<int32_t>(num_tokens_++);
  int32_t at = last_;
  for (int32_t walked = 0; at != kRoot && walked < max_walk_; at = states_[at].link, ++walked) {
    ++states_[at].count;
    states_[at].latest = position;
  }
  return true;
}

// Splits off the strings of `original` that end in parent's string and `token`: they occur once more from now on.
int32_t Automaton::clone(int32_t parent, int32_t token, int32_t original) {
  const int32_t id = static_cast<int32_t>(states_.size());
  states_.push_back(states_[original]);
  states_[id].len = states_[parent].len + 1;
  states_[id].last_edge = kNone;
  each_edge(original, [&](const Edge edge) {  // a copy: edges_ grows meanwhile, within its capacity
    add_edge(id, edge.token, edge.target);
    return true;
  });
  states_[original].link = id;
  for (int32_t at = parent; at != kNone; at = states_[at].link) {
    Edge& edge = edges_[table_[slot_of(at, token)]];
    if (edge.target != original) break;
    edge.target = id;
  }
  return id;
}

void Automaton::add_edge(int32_t from, int32_t token, int32_t target) {
  const int32_t id = static_cast<int32_t>(edges_.size());
  State& state = states_[from];
  edges_.push_back({from, token, target, id});
  if (state.last_edge != kNone) {
    edges_[id].next = edges_[state.last_edge].next;
    edges_[state.last_edge].next = id;
  }
  state.last_edge = id;
  place(id);
}

void Automaton::place(int32_t edge) { table_[slot_of(edges_[edge].from, edges_[edge].token)] = edge; }

size_t Automaton::degree(int32_t id) const {
  size_t edges = 0;
  each_edge(id, [&](const Edge&) { return ++edges, true; });
  return edges;
}

// Grows one array after the other: while one is copied, the old and the new are held together, and both count.
bool Automaton::reserve(size_t states, size_t edges) {
  return reserve(states_, states) && reserve(edges_, edges) && reserve_slots(edges_.size() + edges);
}

template <typename T>
bool Automaton::reserve(std::vector<T>& items, size_t more) {
  const size_t needed = items.size() + more;
  if (needed <= items.capacity()) return true;
  const size_t capacity = std::max(needed, items.capacity() + items.capacity() / 2);
  if (needed > kMost || bytes() + static_cast<int64_t>(capacity * sizeof(T)) > max_bytes_) return false;
  items.reserve(capacity);
  return true;
}

bool Automaton::reserve_slots(size_t edges) {
  const size_t slots = slots_for(edges);
  if (slots <= table_.size()) return true;
  if (bytes() + static_cast<int64_t>(slots * sizeof(int32_t)) > max_bytes_) return false;
  std::vector<int32_t> larger(slots, kNone);
  table_.swap(larger);
  for (size_t edge = 0; edge < edges_.size(); ++edge) place(static_cast<int32_t>(edge));
  return true;
}

void advance(const Automaton& automaton, Cursor& cursor, int32_t token) {
  settle(automaton, cursor);
  for (;;) {
    const int32_t next = automaton.follow(cursor.state, token);
    if (next != kNone) {
      cursor = {next, cursor.len + 1};
      return;
    }
    if (cursor.state == kRoot) return;
    cursor.state = automaton.state(cursor.state).link;
    cursor.len = automaton.state(cursor.state).len;
  }
}

void settle(const Automaton& automaton, Cursor& cursor) {
  while (cursor.state != kRoot && automaton.state(automaton.state(cursor.state).link).len >= cursor.len)
    cursor.state = automaton.state(cursor.state).link;
}

Cursor repeated(const Automaton& automaton) {
  const int32_t last = automaton.last();
  if (last == kRoot) return {};
  const int32_t longest = automaton.state(last).count > 1 ? last : automaton.state(last).link;
  return {longest, automaton.state(longest).len};
}

}  // namespace offramp::suffix
