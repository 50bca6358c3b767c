// Products of a few rows with a packed matrix, AVX2. Lanes are outputs; a tile of R rows x G groups of 8 outputs shares
// every weight load. One row is bound by the bytes of the weights; from about four rows on by vpmaddwd + vpaddd
// (256 products take 16 of each), so rows are cheap until arithmetic catches up with memory.
#include "avx2.h"

namespace offramp::avx2 {
namespace {

constexpr int kMaxRows = 4;

struct Tile {
  const uint8_t* weights;  // first group
  int64_t group_bytes;
  int blocks;
  int in;
  const float* values[kMaxRows];
  const int16_t* quants[kMaxRows];
  const float* block_sums[kMaxRows];
  float scales[kMaxRows];
  float* out[kMaxRows];
  int lanes[2];  // valid outputs of each group
};

inline __m256i pair_of(const int16_t* quants) {
  int32_t pair;
  __builtin_memcpy(&pair, quants, 4);
  return _mm256_set1_epi32(pair);
}

template <int R, int G>
void store_scaled(const Tile& t, __m256 (&acc)[R][G]) {
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) {
      store_lanes(t.out[r] + g * kLanes, _mm256_mul_ps(acc[r][g], _mm256_set1_ps(t.scales[r])), t.lanes[g]);
    }
  }
}

template <int R, int G>
void tile_q8(const Tile& t) {
  __m256 acc[R][G];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) acc[r][g] = _mm256_setzero_ps();
  for (int b = 0; b < t.blocks; ++b) {
    const uint8_t* w = t.weights + static_cast<int64_t>(b) * kQ8Tile;
    __m256i sum[R][G];
    for (int r = 0; r < R; ++r)
      for (int g = 0; g < G; ++g) sum[r][g] = _mm256_setzero_si256();
#pragma GCC unroll 16
    for (int p = 0; p < kBlock / 2; ++p) {
      __m256i weight[G];
      for (int g = 0; g < G; ++g) {
        const void* source = w + g * t.group_bytes + 16 + p * 16;
        weight[g] = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(source)));
      }
      for (int r = 0; r < R; ++r) {
        const __m256i x = pair_of(t.quants[r] + b * kBlock + 2 * p);
        for (int g = 0; g < G; ++g) sum[r][g] = _mm256_add_epi32(sum[r][g], _mm256_madd_epi16(weight[g], x));
      }
    }
    for (int g = 0; g < G; ++g) {
      const __m256 scale = load8_f16(w + g * t.group_bytes);
      for (int r = 0; r < R; ++r) acc[r][g] = mul_add(acc[r][g], _mm256_cvtepi32_ps(sum[r][g]), scale);
    }
  }
  store_scaled<R, G>(t, acc);
}

template <int R, int G>
void tile_q4(const Tile& t) {
  const __m256i low = _mm256_set1_epi16(0x000f);
  __m256 acc[R][G];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) acc[r][g] = _mm256_setzero_ps();
  for (int b = 0; b < t.blocks; ++b) {
    const uint8_t* w = t.weights + static_cast<int64_t>(b) * kQ4Tile;
    __m256i sum[R][G];
    for (int r = 0; r < R; ++r)
      for (int g = 0; g < G; ++g) sum[r][g] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int c = 0; c < kBlock / 4; ++c) {
      __m256i first[G];
      __m256i second[G];
      for (int g = 0; g < G; ++g) {
        const void* source = w + g * t.group_bytes + 32 + c * 16;
        const __m256i codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(source)));
        first[g] = _mm256_and_si256(codes, low);
        second[g] = _mm256_srli_epi16(codes, 4);
      }
      for (int r = 0; r < R; ++r) {
        const int16_t* quants = t.quants[r] + b * kBlock + 4 * c;
        const __m256i x = pair_of(quants);
        const __m256i y = pair_of(quants + 2);
        for (int g = 0; g < G; ++g) {
          sum[r][g] = _mm256_add_epi32(sum[r][g], _mm256_madd_epi16(first[g], x));
          sum[r][g] = _mm256_add_epi32(sum[r][g], _mm256_madd_epi16(second[g], y));
        }
      }
    }
    for (int g = 0; g < G; ++g) {
      const __m256 scale = load8_f16(w + g * t.group_bytes);
      const __m256 minimum = load8_f16(w + g * t.group_bytes + 16);
      for (int r = 0; r < R; ++r) {
        acc[r][g] = mul_add(acc[r][g], _mm256_cvtepi32_ps(sum[r][g]), scale);
        acc[r][g] = mul_add(acc[r][g], _mm256_set1_ps(t.block_sums[r][b]), minimum);
      }
    }
  }
  store_scaled<R, G>(t, acc);
}

template <int R, int G>
void tile_f32(const Tile& t) {
  __m256 acc[R][G];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) acc[r][g] = _mm256_setzero_ps();
  const float* w = reinterpret_cast<const float*>(t.weights);
  const int64_t group = t.group_bytes / 4;
  for (int i = 0; i < t.in; ++i) {
    __m256 weight[G];
    for (int g = 0; g < G; ++g) weight[g] = load8(w + g * group + static_cast<int64_t>(i) * kLanes);
    for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_set1_ps(t.values[r][i]);
      for (int g = 0; g < G; ++g) acc[r][g] = mul_add(acc[r][g], weight[g], x);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) store_lanes(t.out[r] + g * kLanes, acc[r][g], t.lanes[g]);
}

template <int R, int G>
void run_tile(int format, const Tile& t) {
  if (format == kF32) {
    tile_f32<R, G>(t);
  } else if (format == kQ8) {
    tile_q8<R, G>(t);
  } else {
    tile_q4<R, G>(t);
  }
}

template <int G>
void run_rows(int format, int rows, const Tile& t) {
  if (rows == 1) run_tile<1, G>(format, t);
  if (rows == 2) run_tile<2, G>(format, t);
  if (rows == 3) run_tile<3, G>(format, t);
  if (rows == 4) run_tile<4, G>(format, t);
}

int64_t group_bytes(const PackedMatrix* m) {
  if (m->format == kF32) return static_cast<int64_t>(m->in) * kLanes * 4;
  return static_cast<int64_t>(m->blocks) * (m->format == kQ8 ? kQ8Tile : kQ4Tile);
}

}  // namespace

// Groups outside, rows inside: a pair of groups (10 to 50 kB) stays in the first two cache levels for all rows.
void matmul(const PackedMatrix* m, const Activations* a, int group_begin, int group_end, float* out,
            int64_t out_stride) {
  Tile t = {};
  t.group_bytes = group_bytes(m);
  t.blocks = m->blocks;
  t.in = m->in;
  for (int group = group_begin; group < group_end; group += 2) {
    const int groups = group + 1 < group_end ? 2 : 1;
    t.weights = m->tiles + group * t.group_bytes;
    for (int g = 0; g < groups; ++g) t.lanes[g] = m->out - (group + g) * kLanes;
    for (int row = 0; row < a->rows; row += kMaxRows) {
      const int rows = a->rows - row < kMaxRows ? a->rows - row : kMaxRows;
      for (int r = 0; r < rows; ++r) {
        const int64_t index = row + r;
        t.values[r] = a->values + index * a->value_stride;
        t.quants[r] = a->quants + index * a->blocks * kBlock;
        t.block_sums[r] = a->block_sums + index * a->blocks;
        t.scales[r] = m->format == kF32 ? 1.0f : a->scales[index];
        t.out[r] = out + index * out_stride + static_cast<int64_t>(group) * kLanes;
      }
      if (groups == 2) {
        run_rows<2>(m->format, rows, t);
      } else {
        run_rows<1>(m->format, rows, t);
      }
    }
  }
}

void embed_row(const PackedMatrix* m, int token, float* out) {
  const uint8_t* group = m->tiles + (token / kLanes) * group_bytes(m);
  const int lane = token % kLanes;
  for (int i = 0; i < m->in; ++i) {
    if (m->format == kF32) {
      out[i] = reinterpret_cast<const float*>(group)[static_cast<int64_t>(i) * kLanes + lane];
      continue;
    }
    const uint8_t* tile = group + static_cast<int64_t>(i / kBlock) * (m->format == kQ8 ? kQ8Tile : kQ4Tile);
    const int pair = (i % kBlock) / 2;
    uint16_t half;
    __builtin_memcpy(&half, tile + 2 * lane, 2);
    const float scale = _cvtsh_ss(half);
    if (m->format == kQ8) {
      out[i] = static_cast<float>(static_cast<int8_t>(tile[16 + pair * 16 + lane * 2 + i % 2])) * scale;
      continue;
    }
    const uint8_t byte = tile[32 + (pair / 2) * 16 + lane * 2 + i % 2];
    __builtin_memcpy(&half, tile + 16 + 2 * lane, 2);
    const float code = static_cast<float>(pair % 2 == 0 ? (byte & 0x0f) : (byte >> 4));
    out[i] = code * scale + _cvtsh_ss(half);
  }
}

}  // namespace offramp::avx2
