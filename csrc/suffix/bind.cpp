// Python's door to the suffix automaton: offramp.native.suffix is the only caller.
#include "bind.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <tuple>
#include <vector>

#include "automaton.h"
#include "growth.h"

namespace nb = nanobind;

namespace offramp::suffix {
namespace {

constexpr int64_t kLeastBytes = 4096;
constexpr int32_t kMostNodes = 4096;

using TokenIds = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Worth = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Nodes = std::vector<int32_t>;

// Python keeps the automaton alive as long as its readers.
struct Reader {
  const Automaton* automaton;
  Cursor cursor;
};

int64_t extend(Automaton& automaton, const TokenIds& ids) {
  const int64_t count = static_cast<int64_t>(ids.size());
  for (int64_t i = 0; i < count; ++i)
    if (!automaton.extend(ids.data()[i])) return i;
  return count;
}

int32_t count_of(const Automaton& automaton, const TokenIds& ids) {
  int32_t state = kRoot;
  for (size_t i = 0; i < ids.size() && state != kNone; ++i) state = automaton.follow(state, ids.data()[i]);
  return state == kNone ? 0 : automaton.state(state).count;
}

std::tuple<Nodes, Nodes, Nodes, Nodes> grow_from(const nb::list& readers, const nb::list& worths, int32_t max_nodes,
                                                 int32_t max_depth, float min_score) {
  if (readers.size() != worths.size()) throw std::invalid_argument("one array of worth a reader");
  if (readers.size() > kMaxSources) throw std::invalid_argument("too many readers");
  if (max_nodes > kMostNodes) throw std::invalid_argument("max_nodes is too large");
  std::vector<Source> sources;
  for (size_t i = 0; i < readers.size(); ++i) {
    const Reader& reader = nb::cast<const Reader&>(readers[i]);
    const Worth worth = nb::cast<Worth>(worths[i], false);
    if (worth.size() != kGrades) throw std::invalid_argument("worth has the wrong size");
    sources.push_back({reader.automaton, reader.cursor, worth.data()});
  }
  Draft draft = grow(sources, {max_nodes, max_depth, min_score});
  return {std::move(draft.tokens), std::move(draft.parents), std::move(draft.sources), std::move(draft.grades)};
}

// (order, context length, share) of each grade: its lower bounds.
std::vector<std::tuple<int32_t, int32_t, float>> grades() {
  std::vector<std::tuple<int32_t, int32_t, float>> bounds;
  for (int32_t order = 0; order < kOrders; ++order)
    for (const int32_t len : kLens)
      for (const float share : kShares) bounds.emplace_back(order, len, share);
  return bounds;
}

}  // namespace
}  // namespace offramp::suffix

void bind_suffix(nb::module_& m) {
  using namespace nb::literals;
  using namespace offramp::suffix;
  nb::class_<Reader>(m, "SuffixReader")
      .def("advance", [](Reader& r, const TokenIds& ids) {
        for (size_t i = 0; i < ids.size(); ++i) advance(*r.automaton, r.cursor, ids.data()[i]);
      }, nb::arg().noconvert())
      .def_prop_ro("match_len", [](const Reader& r) { return r.cursor.len; });
  nb::class_<Automaton>(m, "SuffixAutomaton")
      .def("__init__", [](Automaton* self, int64_t max_bytes, int32_t max_walk) {
        if (max_bytes < kLeastBytes || max_walk < 1) throw std::invalid_argument("bounds too small");
        new (self) Automaton(max_bytes, max_walk);
      }, "max_bytes"_a, "max_walk"_a)
      .def("extend", &extend, nb::arg().noconvert())
      .def("begin_text", &Automaton::begin_text)
      .def("count", &count_of, nb::arg().noconvert())
      .def("reader", [](const Automaton& a) { return Reader{&a, {}}; }, nb::keep_alive<0, 1>())
      .def("repeated", [](const Automaton& a) { return Reader{&a, repeated(a)}; }, nb::keep_alive<0, 1>())
      .def_prop_ro("num_bytes", &Automaton::bytes)
      .def_prop_ro("num_tokens", &Automaton::num_tokens);
  m.def("suffix_grow", &grow_from, "readers"_a, "worths"_a, "max_nodes"_a, "max_depth"_a, "min_score"_a);
  m.def("suffix_grade", &grade_of, "order"_a, "context_len"_a, "share"_a);
  m.attr("SUFFIX_GRADES") = nb::cast(grades());
}
