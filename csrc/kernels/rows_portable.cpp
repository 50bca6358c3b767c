// Row-wise parts of a layer, scalar, and the portable kernel table.
#include "portable.h"

namespace offramp {
namespace portable {
namespace {

void rms_norm(const float* x, const float* w, int n, float eps, float* y) {
  float p[8] = {};
  for (int i = 0; i < n; ++i) p[i % 8] = p[i % 8] + x[i] * x[i];
  const float r = 1.0f / std::sqrt(fold8(p) / static_cast<float>(n) + eps);
  for (int i = 0; i < n; ++i) y[i] = (x[i] * r) * w[i];
}

void quantize_row(const float* x, int n, int blocks, int16_t* q, float* scale, float* block_sums) {
  uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = bits_from_float(x[i]) & 0x7fffffffu;
    largest = largest > magnitude ? largest : magnitude;
  }
  const float amax = float_from_bits(largest);
  const bool finite = largest < 0x7f800000u;
  const bool zero = !finite || amax < 1e-30f;
  const float inverse = zero ? 0.0f : 32767.0f / amax;
  *scale = !finite ? float_from_bits(0x7fc00000u) : zero ? 0.0f : amax / 32767.0f;
  for (int b = 0; b < blocks; ++b) {
    int32_t sum = 0;
    for (int i = b * kBlock; i < (b + 1) * kBlock; ++i) {
      int32_t value = i < n && !zero ? static_cast<int32_t>(std::nearbyint(x[i] * inverse)) : 0;
      value = value > 32767 ? 32767 : value < -32767 ? -32767 : value;
      q[i] = static_cast<int16_t>(value);
      sum += value;
    }
    block_sums[b] = static_cast<float>(sum);
  }
}

void rope(float* head, int rotary_dim, const float* cosines, const float* sines) {
  const int half = rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

void swiglu(const float* gate, const float* up, float* out, int n) {
  for (int i = 0; i < n; ++i) out[i] = (gate[i] / (1.0f + exp_f32(-gate[i]))) * up[i];
}

// gelu's tanh approximation: 0.5 * (1 + tanh(z / 2)) is 1 / (1 + exp(-z)).
void geglu(const float* gate, const float* up, float* out, int n) {
  for (int i = 0; i < n; ++i) {
    const float g = gate[i];
    const float z = 1.59576912f * (g + 0.044715f * ((g * g) * g));
    out[i] = (g / (1.0f + exp_f32(-z))) * up[i];
  }
}

void add(float* h, const float* y, int n) {
  for (int i = 0; i < n; ++i) h[i] = h[i] + y[i];
}

float log_sum_exp(const float* x, int64_t n) {
  float m = x[0];
  for (int64_t i = 1; i < n; ++i) m = m > x[i] ? m : x[i];
  float t[8] = {};
  for (int64_t i = 0; i < n; ++i) t[i % 8] = t[i % 8] + exp_f32(x[i] - m);
  return static_cast<float>(static_cast<double>(m) + std::log(static_cast<double>(fold8(t))));
}

void peak(const float* x, int64_t n, Peak* out) {
  float largest = x[0], second = -INFINITY;
  int32_t index = 0;
  for (int64_t i = 1; i < n; ++i) {
    const float below = largest < x[i] ? largest : x[i];
    second = second > below ? second : below;
    if (x[i] > largest) {
      largest = x[i];
      index = static_cast<int32_t>(i);
    }
  }
  float t[8] = {}, u[8] = {};
  for (int64_t i = 0; i < n; ++i) {
    const float d = x[i] - largest;
    const float fall = -87.0f > d ? -87.0f : d;
    const float e = exp_f32(fall);
    t[i % 8] = t[i % 8] + e;
    u[i % 8] = u[i % 8] + e * fall;
  }
  *out = {largest, exp_f32(second - largest), fold8(t), fold8(u), index};
}

}  // namespace
}  // namespace portable

const Kernels kPortableKernels = {
    "portable",     portable::rms_norm, portable::quantize_row, portable::matmul, portable::embed_row,
    portable::rope, portable::swiglu,   portable::geglu,        portable::add,    &portable::kAttention,
    portable::log_sum_exp, portable::peak,
};

}  // namespace offramp
