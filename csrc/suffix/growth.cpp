#include "growth.h"

#include <algorithm>

namespace offramp::suffix {
namespace {

constexpr int32_t kMaxFollowers = 64;  // looked at after one context; where there are more, none is likely
constexpr int32_t kMaxHops = 16;       // contexts tried on the way to one that was ever followed

struct Follower {
  int32_t token;
  int32_t count;
  int32_t latest;
};

struct Candidate {
  float score;
  int32_t parent;
  int32_t token;
  int32_t source;
  int32_t grade;
  int32_t latest;
};

// A total order, so that nothing depends on how a heap or a sort breaks ties: the later occurrence wins them.
bool worse(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score < b.score;
  if (a.parent != b.parent) return a.parent > b.parent;
  if (a.source != b.source) return a.source > b.source;
  if (a.latest != b.latest) return a.latest < b.latest;
  return a.token > b.token;
}

struct Node {
  std::array<Cursor, kMaxSources> at;
  float score;
  int32_t depth;
};

class Growth {
 public:
  Growth(const std::vector<Source>& sources, const Limits& limits) : sources_(sources), limits_(limits) {}

  Draft run() {
    Node root{{}, 1.0f, 0};
    for (size_t i = 0; i < sources_.size(); ++i) root.at[i] = sources_[i].cursor;
    if (limits_.max_nodes > 0 && limits_.max_depth > 0) offer(root, kNone);
    while (!heap_.empty() && static_cast<int32_t>(nodes_.size()) < limits_.max_nodes) {
      std::pop_heap(heap_.begin(), heap_.end(), worse);
      const Candidate best = heap_.back();
      heap_.pop_back();
      add(best, best.parent == kNone ? root : nodes_[best.parent]);
    }
    return std::move(draft_);
  }

 private:
  void add(const Candidate& chosen, const Node& parent) {
    Node node{parent.at, chosen.score, parent.depth + 1};
    for (size_t i = 0; i < sources_.size(); ++i) advance(*sources_[i].automaton, node.at[i], chosen.token);
    draft_.tokens.push_back(chosen.token);
    draft_.parents.push_back(chosen.parent);
    draft_.sources.push_back(chosen.source);
    draft_.grades.push_back(chosen.grade);
    const int32_t id = static_cast<int32_t>(nodes_.size());
    nodes_.push_back(node);
    if (node.depth < limits_.max_depth) offer(node, id);
  }

  // Puts on the heap what may follow a node, each token once, from the source that thinks most of it.
  void offer(const Node& node, int32_t id) {
    offered_.clear();
    for (size_t i = 0; i < sources_.size(); ++i) ask(static_cast<int32_t>(i), node, id);
    std::sort(offered_.begin(), offered_.end(), [](const Candidate& a, const Candidate& b) {
      return a.token != b.token ? a.token < b.token : worse(b, a);
    });
    for (size_t i = 0; i < offered_.size(); ++i) {
      if (i > 0 && offered_[i].token == offered_[i - 1].token) continue;
      heap_.push_back(offered_[i]);
      std::push_heap(heap_.begin(), heap_.end(), worse);
    }
  }

  void ask(int32_t source, const Node& node, int32_t id) {
    const Automaton& automaton = *sources_[source].automaton;
    Cursor context = node.at[source];
    settle(automaton, context);
    seen_.clear();
    for (int32_t order = 0, hops = 0; order < kOrders && hops < kMaxHops && context.state != kRoot; ++hops) {
      const int64_t total = gather(automaton, context.state);
      for (const Follower& follower : followers_) {
        const float share = static_cast<float>(follower.count) / (static_cast<float>(total) + 0.5f);
        const int32_t grade = grade_of(order, context.len, share);
        const float score = node.score * std::min(sources_[source].worth[grade], 1.0f);
        if (score >= limits_.min_score)
          offered_.push_back({score, id, follower.token, source, grade, follower.latest});
      }
      for (const Follower& follower : followers_) seen_.push_back(follower.token);
      order += !followers_.empty();
      context.state = automaton.state(context.state).link;
      context.len = automaton.state(context.state).len;
    }
  }

  // Finds what followed a context, without what followed a longer one; returns how often, all together.
  int64_t gather(const Automaton& automaton, int32_t state) {
    followers_.clear();
    int64_t total = 0;
    int32_t looked = 0;
    automaton.each_edge(state, [&](const Edge& edge) {
      if (std::find(seen_.begin(), seen_.end(), edge.token) == seen_.end()) {
        const State& target = automaton.state(edge.target);
        followers_.push_back({edge.token, target.count, target.latest});
        total += target.count;
      }
      return ++looked < kMaxFollowers;
    });
    return looked < kMaxFollowers ? total : std::max<int64_t>(total, automaton.state(state).count);
  }

  const std::vector<Source>& sources_;
  const Limits limits_;
  Draft draft_;
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
  std::vector<Candidate> offered_;    // of the node at work
  std::vector<Follower> followers_;   // of the context at work
  std::vector<int32_t> seen_;         // after longer contexts of that source
};

}  // namespace

int32_t grade_of(int32_t order, int32_t context_len, float share) {
  const auto length = std::upper_bound(kLens.begin(), kLens.end(), std::max(context_len, kLens.front()));
  const auto part = std::upper_bound(kShares.begin(), kShares.end(), std::max(share, kShares.front()));
  const int32_t row = order * static_cast<int32_t>(kLens.size()) + static_cast<int32_t>(length - kLens.begin()) - 1;
  return row * static_cast<int32_t>(kShares.size()) + static_cast<int32_t>(part - kShares.begin()) - 1;
}

Draft grow(const std::vector<Source>& sources, const Limits& limits) { return Growth(sources, limits).run(); }

}  // namespace offramp::suffix
