// The arrays of offramp.core.Rows.
#pragma once
#include <cstdint>

namespace offramp {

struct RowsView {
  int rows;
  int sequences;
  const int32_t* tokens;
  const int32_t* sequence;
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* prefix_lens;
  const int32_t* ancestor_slots;
  const int32_t* ancestor_starts;
  const int32_t* page_ids;
  const int32_t* page_starts;

  const int32_t* pages_of(int row) const { return page_ids + page_starts[sequence[row]]; }
};

}  // namespace offramp
