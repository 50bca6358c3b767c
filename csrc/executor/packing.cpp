#include "packing.h"

#include <cstring>

namespace offramp {
namespace {

int64_t groups_of(int64_t out) { return (out + kTile - 1) / kTile; }

// One output of a tile: `units` pieces of `bytes` bytes, 16 outputs apart.
void copy_lane(const uint8_t* from, int64_t from_lane, uint8_t* to, int64_t lane, int64_t units, int64_t bytes) {
  for (int64_t u = 0; u < units; ++u) {
    std::memcpy(to + (u * kTile + lane) * bytes, from + (u * kTile + from_lane) * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace

int64_t packed_bytes(int format, int64_t out, int64_t in) {
  const int64_t blocks = (in + kBlock - 1) / kBlock;
  if (format == kF32) return groups_of(out) * in * kTile * 4;
  return groups_of(out) * blocks * (format == kQ8 ? kQ8Tile : kQ4Tile);
}

void pack_f32(const float* values, int64_t out, int64_t in, uint8_t* tiles) {
  float* target = reinterpret_cast<float*>(tiles);
  std::memset(tiles, 0, static_cast<size_t>(packed_bytes(kF32, out, in)));
  for (int64_t o = 0; o < out; ++o) {
    float* group = target + (o / kTile) * in * kTile + o % kTile;
    for (int64_t i = 0; i < in; ++i) group[i * kTile] = values[o * in + i];
  }
}

void pack_q8(const int8_t* quants, const uint16_t* scales, int64_t out, int64_t blocks, uint8_t* tiles) {
  std::memset(tiles, 0, static_cast<size_t>(packed_bytes(kQ8, out, blocks * kBlock)));
  for (int64_t o = 0; o < out; ++o) {
    const int64_t lane = o % kTile;
    for (int64_t b = 0; b < blocks; ++b) {
      uint8_t* tile = tiles + ((o / kTile) * blocks + b) * kQ8Tile;
      std::memcpy(tile + 2 * lane, scales + o * blocks + b, 2);
      const int8_t* source = quants + (o * blocks + b) * kBlock;
      for (int pair = 0; pair < kBlock / 2; ++pair) std::memcpy(tile + kHalves + pair * 2 * kTile + lane * 2, source + 2 * pair, 2);
    }
  }
}

void pack_q4(const uint8_t* codes, const uint16_t* scales, const uint16_t* minimums, int64_t out, int64_t blocks,
             uint8_t* tiles) {
  std::memset(tiles, 0, static_cast<size_t>(packed_bytes(kQ4, out, blocks * kBlock)));
  for (int64_t o = 0; o < out; ++o) {
    const int64_t lane = o % kTile;
    for (int64_t b = 0; b < blocks; ++b) {
      uint8_t* tile = tiles + ((o / kTile) * blocks + b) * kQ4Tile;
      std::memcpy(tile + 2 * lane, scales + o * blocks + b, 2);
      std::memcpy(tile + kHalves + 2 * lane, minimums + o * blocks + b, 2);
      const uint8_t* source = codes + (o * blocks + b) * kBlock;
      for (int i = 0; i < kBlock; ++i) {
        const int pair = i / 2;
        uint8_t* byte = tile + 2 * kHalves + (pair / 2) * 2 * kTile + lane * 2 + i % 2;
        *byte = static_cast<uint8_t>(*byte | (pair % 2 == 0 ? (source[i] & 0x0f) : (source[i] & 0x0f) << 4));
      }
    }
  }
}

void gather_outputs(const PackedMatrix& m, const int32_t* outputs, int64_t n, uint8_t* tiles) {
  // f32 has a float for each inner value; q8 and q4 have two bytes for everything: scale, minimum, pairs.
  const int64_t bytes = m.format == kF32 ? 4 : 2;
  const int64_t group = packed_bytes(m.format, kTile, m.in);
  const int64_t units = group / (kTile * bytes);
  std::memset(tiles, 0, static_cast<size_t>(packed_bytes(m.format, n, m.in)));
  for (int64_t o = 0; o < n; ++o) {
    const uint8_t* from = m.tiles + outputs[o] / kTile * group;
    copy_lane(from, outputs[o] % kTile, tiles + o / kTile * group, o % kTile, units, bytes);
  }
}

}  // namespace offramp
