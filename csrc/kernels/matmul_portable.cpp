// Products of a few rows with a packed matrix, scalar: the twin that the vector paths must match bit for bit.
#include "portable.h"

namespace offramp::portable {
namespace {

const uint8_t* tile_of(const PackedMatrix* m, int group, int block, int tile_bytes) {
  return m->tiles + (static_cast<int64_t>(group) * m->blocks + block) * tile_bytes;
}

float f16_at(const uint8_t* base, int index) {
  uint16_t half;
  std::memcpy(&half, base + 2 * index, 2);
  return f32_from_f16(half);
}

// Weight `i` of a block for output `lane`.
int q8_value(const uint8_t* tile, int lane, int i) {
  return static_cast<int8_t>(tile[kHalves + (i / 2) * 2 * kTile + lane * 2 + (i % 2)]);
}

int q4_value(const uint8_t* tile, int lane, int i) {
  const int pair = i / 2;
  const uint8_t byte = tile[2 * kHalves + (pair / 2) * 2 * kTile + lane * 2 + (i % 2)];
  return pair % 2 == 0 ? (byte & 0x0f) : (byte >> 4);
}

float dot_f32(const PackedMatrix* m, int output, const float* x) {
  const float* w = reinterpret_cast<const float*>(m->tiles) + static_cast<int64_t>(output / kTile) * m->in * kTile;
  float acc = 0.0f;
  for (int i = 0; i < m->in; ++i) acc = acc + w[i * kTile + output % kTile] * x[i];
  return acc;
}

float dot_q8(const PackedMatrix* m, int output, const int16_t* a, float row_scale) {
  const int lane = output % kTile;
  float acc = 0.0f;
  for (int b = 0; b < m->blocks; ++b) {
    const uint8_t* tile = tile_of(m, output / kTile, b, kQ8Tile);
    int32_t sum = 0;
    for (int i = 0; i < kBlock; ++i) sum += q8_value(tile, lane, i) * a[b * kBlock + i];
    acc = acc + static_cast<float>(sum) * f16_at(tile, lane);
  }
  return acc * row_scale;
}

float dot_q4(const PackedMatrix* m, int output, const int16_t* a, const float* block_sums, float row_scale) {
  const int lane = output % kTile;
  float acc = 0.0f;
  for (int b = 0; b < m->blocks; ++b) {
    const uint8_t* tile = tile_of(m, output / kTile, b, kQ4Tile);
    int32_t sum = 0;
    for (int i = 0; i < kBlock; ++i) sum += q4_value(tile, lane, i) * a[b * kBlock + i];
    acc = acc + static_cast<float>(sum) * f16_at(tile, lane);
    acc = acc + block_sums[b] * f16_at(tile + kHalves, lane);
  }
  return acc * row_scale;
}

}  // namespace

void matmul(const PackedMatrix* m, const Activations* a, int group_begin, int group_end, float* out,
            int64_t out_stride) {
  const int end = group_end * kTile < m->out ? group_end * kTile : m->out;
  for (int o = group_begin * kTile; o < end; ++o) {
    for (int r = 0; r < a->rows; ++r) {
      const int16_t* quants = a->quants + static_cast<int64_t>(r) * a->blocks * kBlock;
      float* target = out + r * out_stride + o;
      if (m->format == kF32) *target = dot_f32(m, o, a->values + r * a->value_stride);
      if (m->format == kQ8) *target = dot_q8(m, o, quants, a->scales[r]);
      if (m->format == kQ4)
        *target = dot_q4(m, o, quants, a->block_sums + static_cast<int64_t>(r) * a->blocks, a->scales[r]);
    }
  }
}

void embed_row(const PackedMatrix* m, int token, float* out) {
  const int group = token / kTile;
  const int lane = token % kTile;
  for (int i = 0; i < m->in; ++i) {
    if (m->format == kF32) {
      const float* w = reinterpret_cast<const float*>(m->tiles) + static_cast<int64_t>(group) * m->in * kTile;
      out[i] = w[i * kTile + lane];
    } else if (m->format == kQ8) {
      const uint8_t* tile = tile_of(m, group, i / kBlock, kQ8Tile);
      out[i] = static_cast<float>(q8_value(tile, lane, i % kBlock)) * f16_at(tile, lane);
    } else {
      const uint8_t* tile = tile_of(m, group, i / kBlock, kQ4Tile);
      out[i] = static_cast<float>(q4_value(tile, lane, i % kBlock)) * f16_at(tile, lane) + f16_at(tile + kHalves, lane);
    }
  }
}

}  // namespace offramp::portable
