// The portable path: scalar C++ that spells out docs/arithmetic.md. Shared by the portable kernel files only.
#pragma once
#include <cmath>
#include <cstring>

#include "kernels.h"

namespace offramp::portable {

inline float fold8(const float* p) { return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7])); }

inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t bits_from_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float exp_f32(float x) {
  x = -87.0f > x ? -87.0f : x;
  x = 88.0f < x ? 88.0f : x;
  if (!(x == x)) return x;  // a NaN has no exponent to build
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * float_from_bits(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}

inline float f32_from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1fu) return float_from_bits(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return float_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float subnormal = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24, exact
  return float_from_bits(sign | bits_from_float(subnormal));
}

// Round to nearest even, overflow to infinity, subnormals kept.
inline uint16_t f16_from_f32(float value) {
  const uint32_t bits = bits_from_float(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (magnitude < 0x38800000u) {                                              // below 2^-14: subnormal or zero
    const float scaled = float_from_bits(magnitude) * 16777216.0f;             // in units of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

void matmul(const PackedMatrix* m, const Activations* a, int group_begin, int group_end, float* out,
            int64_t out_stride);
void embed_row(const PackedMatrix* m, int token, float* out);
extern const Attention kAttention;

}  // namespace offramp::portable
