// Python's door to the draw: offramp.native.sampling is the only caller.
#include "bind.h"

#include <nanobind/ndarray.h>

#include <stdexcept>

#include "sampling.h"

namespace nb = nanobind;

namespace offramp::sampling {
namespace {

using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const Kernels& kernels_for(bool portable) {
  return !portable && __builtin_cpu_supports("avx2") ? kAvx2Kernels : kPortableKernels;
}

int32_t draw_token(const Row& row, double temperature, int32_t top_k, double top_p, double min_p, uint64_t seed,
                   uint32_t choice, uint32_t position, bool portable) {
  const int64_t vocab = static_cast<int64_t>(row.shape(0));
  if (vocab < 1 || vocab >= int64_t{1} << 19) throw std::invalid_argument("draw_token takes 1 to 2^19 - 1 logits");
  if (!(temperature > 0.0)) throw std::invalid_argument("draw_token takes a positive temperature");
  const int32_t id = draw(kernels_for(portable), row.data(), static_cast<int32_t>(vocab), temperature,
                          {top_k, top_p, min_p}, {seed, position, choice});
  if (id < 0) throw std::invalid_argument("draw_token takes finite logits, or -inf for some of them");
  return id;
}

}  // namespace
}  // namespace offramp::sampling

void bind_sampling(nb::module_& m) {
  using namespace nb::literals;
  m.def("draw_token", &offramp::sampling::draw_token, "row"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a,
        "seed"_a, "choice"_a, "position"_a, "portable"_a, nb::call_guard<nb::gil_scoped_release>(),
        "The token drawn from one row [vocab] f32 that holds a finite logit and neither NaN nor +inf.");
}
