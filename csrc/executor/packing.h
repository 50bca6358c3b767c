// Canonical weights (row major) into the interleaved tiles of kernels.h.
#pragma once
#include <cstdint>

#include "../kernels/kernels.h"

namespace offramp {

int64_t packed_bytes(int format, int64_t out, int64_t in);

// All targets hold packed_bytes() bytes; the padding of the last group is written as zeros.
void pack_f32(const float* values, int64_t out, int64_t in, uint8_t* tiles);
void pack_q8(const int8_t* quants, const uint16_t* scales, int64_t out, int64_t blocks, uint8_t* tiles);
void pack_q4(const uint8_t* codes, const uint16_t* scales, const uint16_t* minimums, int64_t out, int64_t blocks,
             uint8_t* tiles);

// The chosen outputs of a packed matrix as one of their own: `tiles` holds packed_bytes() of `n` outputs.
void gather_outputs(const PackedMatrix& m, const int32_t* outputs, int64_t n, uint8_t* tiles);

}  // namespace offramp
