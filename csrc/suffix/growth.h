// From the end of a text to a tree of what may follow: every source (an automaton and where the text stands in it)
// offers what it saw after the longest matching context, then after the next shorter one; the tree grows best first.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "automaton.h"

namespace offramp::suffix {

// What is known of an offered token, coarsely: whether it comes from the longest context that was ever followed
// (order 0) or the next shorter one (order 1), that context's length, and its share of the context's followers.
constexpr int32_t kOrders = 2;  // a third was right in 1 of 50 cases
constexpr std::array<int32_t, 9> kLens = {1, 2, 3, 4, 5, 7, 10, 16, 32};
constexpr std::array<float, 8> kShares = {0.0f, 0.1f, 0.2f, 0.35f, 0.5f, 0.7f, 0.85f, 0.93f};
constexpr int32_t kGrades = kOrders * static_cast<int32_t>(kLens.size() * kShares.size());

// The grade with the largest lower bounds; `share` is count / (sum of counts + 1/2), so once of once is not certain.
int32_t grade_of(int32_t order, int32_t context_len, float share);

constexpr int32_t kMaxSources = 4;

struct Source {
  const Automaton* automaton;
  Cursor cursor;
  const float* worth;  // [kGrades], in [0, 1]: how likely such a token is right
};

struct Limits {
  int32_t max_nodes;
  int32_t max_depth;
  float min_score;  // of a node: the product of `worth` along its path
};

// Nodes by falling score, so parents come before their children. [nodes] each.
struct Draft {
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;  // kNone: the end of the text
  std::vector<int32_t> sources;  // which of them gave the best worth
  std::vector<int32_t> grades;
};

// A pure function of its arguments. At most kMaxSources sources.
Draft grow(const std::vector<Source>& sources, const Limits& limits);

}  // namespace offramp::suffix
