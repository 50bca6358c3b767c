// A suffix automaton over several texts of token ids, extended token by token: it answers for any string whether it
// occurred, how often, and what followed.
//
// States are classes of strings with the same end positions; the longest of a class has length `len`, its suffixes
// outside the class belong to `link`. n tokens make at most 2n states and 3n edges, so memory is linear; what bounds
// `extend` is about a dozen random reads (0.1 to 0.3 microseconds while the automaton fits the second cache).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace offramp::suffix {

constexpr int32_t kNone = -1;
constexpr int32_t kRoot = 0;  // the state of the empty string

struct State {
  int32_t len;
  int32_t link;       // kNone for the root
  int32_t count;      // end positions, as far as the walks came; the root is not counted
  int32_t latest;     // the newest end position, as far as the walks came
  int32_t last_edge;  // newest of a ring of edges, or kNone
};

struct Edge {
  int32_t from;
  int32_t token;
  int32_t target;
  int32_t next;  // of the ring: after the newest comes the oldest
};

class Automaton {
 public:
  // `max_walk` bounds how many links a token's count is carried along: in periodic text there are as many as tokens,
  // and short strings there are then counted too low.
  Automaton(int64_t max_bytes, int32_t max_walk);

  // False, with nothing changed, when that would take more than `max_bytes`.
  bool extend(int32_t token);
  void begin_text() { last_ = kRoot; }

  // The state after `state` by `token`, or kNone.
  int32_t follow(int32_t state, int32_t token) const {
    const int32_t edge = table_[slot_of(state, token)];
    return edge == kNone ? kNone : edges_[edge].target;
  }
  const State& state(int32_t id) const { return states_[id]; }
  int32_t last() const { return last_; }  // of the whole text at work

  // Calls `visit(edge)` for the edges out of a state, oldest first, while it returns true.
  template <typename Visit>
  void each_edge(int32_t id, Visit visit) const {
    const int32_t newest = states_[id].last_edge;
    if (newest == kNone) return;
    for (int32_t edge = edges_[newest].next;; edge = edges_[edge].next)
      if (!visit(edges_[edge]) || edge == newest) return;
  }

  int64_t bytes() const;  // allocated
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_states() const { return static_cast<int64_t>(states_.size()); }

 private:
  size_t slot_of(int32_t state, int32_t token) const;  // of that edge, or the empty one where it belongs
  bool reserve(size_t states, size_t edges);
  template <typename T>
  bool reserve(std::vector<T>& items, size_t more);
  bool reserve_slots(size_t edges);
  void place(int32_t edge);
  void add_edge(int32_t from, int32_t token, int32_t target);
  int32_t clone(int32_t parent, int32_t token, int32_t original);
  size_t degree(int32_t id) const;

  int64_t max_bytes_;
  int32_t max_walk_;
  int32_t last_ = kRoot;
  int64_t num_tokens_ = 0;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> table_;  // open addressing, a power of two: edge ids by (from, token)
};

// The longest suffix of a text read token by token that occurs in an automaton.
struct Cursor {
  int32_t state = kRoot;
  int32_t len = 0;
};

// Reads one token: amortised as many steps as tokens.
void advance(const Automaton& automaton, Cursor& cursor, int32_t token);
// Where the suffix belongs now: a state it was in may have been split since.
void settle(const Automaton& automaton, Cursor& cursor);
// The longest suffix of the automaton's own newest text that occurs elsewhere too.
Cursor repeated(const Automaton& automaton);

}  // namespace offramp::suffix
