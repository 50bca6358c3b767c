// Python bindings: offramp.native._native. Arrays are validated here, the executor trusts them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "executor/packing.h"
#include "sampling/bind.h"
#include "suffix/bind.h"

namespace nb = nanobind;
using namespace offramp;

namespace {

template <typename T>
using In1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out1 = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

PackedMatrix matrix_view(const In1<uint8_t>& tiles, int format, int out, int in) {
  require(format == kF32 || format == kQ8 || format == kQ4, "unknown weight format");
  require(static_cast<int64_t>(tiles.size()) == packed_bytes(format, out, in), "packed matrix has the wrong size");
  return {tiles.data(), format, out, in, (in + kBlock - 1) / kBlock};
}

// Holds the arrays of one offramp.core.Rows while a call runs.
struct RowArrays {
  In1<int32_t> tokens, sequence, positions, slots, prefix_lens, ancestor_slots, ancestor_starts, page_ids, page_starts;

  RowsView view() const {
    const size_t n = tokens.size();
    require(sequence.size() == n && positions.size() == n && slots.size() == n && prefix_lens.size() == n,
            "rows: arrays of different lengths");
    require(ancestor_starts.size() == n + 1 && page_starts.size() >= 1, "rows: starts arrays too short");
    require(ancestor_starts.data()[0] == 0 && page_starts.data()[0] == 0, "rows: starts must begin at 0");
    require(std::is_sorted(ancestor_starts.data(), ancestor_starts.data() + n + 1), "rows: ancestor_starts must ascend");
    require(std::is_sorted(page_starts.data(), page_starts.data() + page_starts.size()), "rows: page_starts must ascend");
    require(ancestor_starts.data()[n] == static_cast<int32_t>(ancestor_slots.size()), "rows: ancestors cut short");
    require(page_starts.data()[page_starts.size() - 1] == static_cast<int32_t>(page_ids.size()), "rows: pages cut short");
    return {static_cast<int>(n),    static_cast<int>(page_starts.size()) - 1,
            tokens.data(),          sequence.data(),
            positions.data(),       slots.data(),
            prefix_lens.data(),     ancestor_slots.data(),
            ancestor_starts.data(), page_ids.data(),
            page_starts.data()};
  }
};

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); }

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

// Kernel paths that this processor runs, slowest first.
std::vector<std::string> kernel_paths() {
  std::vector<std::string> paths = {"portable"};
  if (has_avx2()) paths.push_back("avx2");
  if (has_avx512()) paths.push_back("avx512");
  return paths;
}

const Kernels& kernels_named(const std::string& name) {
  const auto paths = kernel_paths();
  require(std::find(paths.begin(), paths.end(), name) != paths.end(), "this processor has no such kernel path");
  if (name == "avx512") return kAvx512Kernels;
  return name == "avx2" ? kAvx2Kernels : kPortableKernels;
}

// The array itself, never a converted copy that would be gone when the call returns.
template <typename Array>
Array array_of(const nb::object& o) {
  Array array;
  if (!nb::try_cast(o, array, false)) throw std::invalid_argument("an array of the wrong type, shape or layout");
  return array;
}

PackedMatrix matrix_of(const nb::object& m) {
  return matrix_view(array_of<In1<uint8_t>>(m.attr("tiles")), nb::cast<int>(m.attr("format")),
                     nb::cast<int>(m.attr("out_features")), nb::cast<int>(m.attr("in_features")));
}

const float* vector_of(const nb::object& v, int size) {
  const auto array = array_of<In1<float>>(v);
  require(static_cast<int>(array.size()) == size, "a norm or bias has the wrong size");
  return array.data();
}

// Null for None.
const float* optional_vector_of(const nb::object& v, int size) { return v.is_none() ? nullptr : vector_of(v, size); }

void require_shape(const PackedMatrix& m, int out, int in) {
  require(m.out == out && m.in == in, "a matrix has the wrong shape");
}

// The caller keeps the arrays behind `layer` alive as long as the executor. `rope` is the index of a table or -1,
// `window` a number of positions or 0 for none.
void add_layer(Executor& e, const nb::object& layer, int rope, int window) {
  require(rope >= -1 && window >= 0, "rope or window out of range");
  const Shape& s = e.shape();
  const int q = s.heads * s.head_dim;
  const int kv = s.kv_heads * s.head_dim;
  const auto part = [&](const char* name, int out, int in) {
    const PackedMatrix m = matrix_of(layer.attr(name));
    require_shape(m, out, in);
    return m;
  };
  const auto vector = [&](const char* name, int size) { return optional_vector_of(layer.attr(name), size); };
  e.add_layer({part("q", q, s.hidden), part("k", kv, s.hidden), part("v", kv, s.hidden), part("o", s.hidden, q),
               part("gate", s.intermediate, s.hidden), part("up", s.intermediate, s.hidden),
               part("down", s.hidden, s.intermediate), vector_of(layer.attr("attn_norm"), s.hidden),
               vector_of(layer.attr("mlp_norm"), s.hidden), vector("q_bias", q), vector("k_bias", kv),
               vector("v_bias", kv), vector("q_norm", s.head_dim), vector("k_norm", s.head_dim),
               vector("post_attn_norm", s.hidden), vector("post_mlp_norm", s.hidden), rope,
               window > 0 ? window : kNoWindow});
}

// The caller keeps the arrays alive as long as the executor. Without an adapter input_norm, down and up are None.
int add_head(Executor& e, const nb::object& matrix, const nb::object& norm, const nb::object& input_norm,
             const nb::object& down, const nb::object& up) {
  const int hidden = e.shape().hidden;
  Head head = {matrix_of(matrix), vector_of(norm, hidden), optional_vector_of(input_norm, hidden), {}, {}};
  require(head.matrix.out > 0 && head.matrix.out <= e.shape().vocab && head.matrix.in == hidden,
          "a head's matrix has the wrong shape");
  if (head.input_norm) {
    head.down = matrix_of(down);
    head.up = matrix_of(up);
    require(head.down.out > 0, "an adapter has no rank");
    require_shape(head.down, head.down.out, hidden);
    require_shape(head.up, hidden, head.down.out);
  }
  return e.add_head(head);
}

void require_width(const Executor& e, size_t width) {
  require(static_cast<int>(width) == e.shape().hidden, "hidden states have the wrong width");
}

// The outputs of the head that a call names.
size_t outputs_for(const Executor& e, int head, const In2<float>& h) {
  require_width(e, h.shape(1));
  return static_cast<size_t>(e.head_outputs(head));
}

// The caller keeps the arrays alive as long as the executor.
int add_join(Executor& e, const nb::object& matrix, const nb::object& norm) {
  const int hidden = e.shape().hidden;
  Join join = {matrix_of(matrix), nullptr};
  require(join.matrix.out == hidden && join.matrix.in % hidden == 0 && join.parts() >= 2,
          "a join's matrix has the wrong shape");
  join.norm = vector_of(norm, join.matrix.in);
  return e.add_join(join);
}

// The checked rows of a call on hidden states [rows][hidden].
template <typename H>
RowsView rows_for(const Executor& e, const RowArrays& rows, const H& h) {
  const RowsView view = rows.view();
  require(h.shape(0) == static_cast<size_t>(view.rows), "one hidden state a row");
  require_width(e, h.shape(1));
  e.check(view);
  return view;
}

uint8_t* target_of(const Out1<uint8_t>& target, int64_t bytes) {
  require(static_cast<int64_t>(target.size()) == bytes, "target has the wrong size");
  return target.data();
}

// Arrays are taken as they are: a converted copy would be written in vain, or be gone when the call returns.
const auto kAsIs = nb::arg().noconvert();

void bind_packing(nb::module_& m) {
  m.def("packed_bytes", &packed_bytes);
  m.def("pack_f32", [](In2<float> values, Out1<uint8_t> target) {
    const int64_t out = values.shape(0), in = values.shape(1);
    uint8_t* tiles = target_of(target, packed_bytes(kF32, out, in));
    nb::gil_scoped_release release;
    pack_f32(values.data(), out, in, tiles);
  }, kAsIs, kAsIs);
  m.def("pack_q8", [](In2<int8_t> quants, In2<uint16_t> scales, Out1<uint8_t> target) {
    const int64_t out = quants.shape(0), blocks = scales.shape(1);
    require(quants.shape(1) == static_cast<size_t>(blocks) * kBlock && scales.shape(0) == quants.shape(0),
            "q8 shapes differ");
    uint8_t* tiles = target_of(target, packed_bytes(kQ8, out, blocks * kBlock));
    nb::gil_scoped_release release;
    pack_q8(quants.data(), scales.data(), out, blocks, tiles);
  }, kAsIs, kAsIs, kAsIs);
  m.def("pack_q4", [](In2<uint8_t> codes, In2<uint16_t> scales, In2<uint16_t> minimums, Out1<uint8_t> target) {
    const int64_t out = codes.shape(0), blocks = scales.shape(1);
    require(codes.shape(1) == static_cast<size_t>(blocks) * kBlock && scales.shape(0) == codes.shape(0) &&
                minimums.shape(0) == scales.shape(0) && minimums.shape(1) == scales.shape(1),
            "q4 shapes differ");
    uint8_t* tiles = target_of(target, packed_bytes(kQ4, out, blocks * kBlock));
    nb::gil_scoped_release release;
    pack_q4(codes.data(), scales.data(), minimums.data(), out, blocks, tiles);
  }, kAsIs, kAsIs, kAsIs, kAsIs);
  m.def("gather_outputs", [](const nb::object& matrix, In1<int32_t> outputs, Out1<uint8_t> target) {
    const PackedMatrix source = matrix_of(matrix);
    const int64_t n = static_cast<int64_t>(outputs.size());
    for (int64_t i = 0; i < n; ++i) {
      require(outputs.data()[i] >= 0 && outputs.data()[i] < source.out, "output out of range");
    }
    uint8_t* tiles = target_of(target, packed_bytes(source.format, n, source.in));
    nb::gil_scoped_release release;
    gather_outputs(source, outputs.data(), n, tiles);
  }, nb::arg(), kAsIs, kAsIs);
}

void bind_rows(nb::module_& m) {
  using Array = In1<int32_t>;
  const auto named = [](const char* name) { return nb::arg(name).noconvert(); };
  nb::class_<RowArrays>(m, "RowArrays")
      .def("__init__", [](RowArrays* self, Array tokens, Array sequence, Array positions, Array slots,
                          Array prefix_lens, Array ancestor_slots, Array ancestor_starts, Array page_ids,
                          Array page_starts) {
        new (self) RowArrays{tokens,         sequence,        positions, slots,      prefix_lens,
                             ancestor_slots, ancestor_starts, page_ids,  page_starts};
      }, nb::kw_only(), named("tokens"), named("sequence"), named("positions"), named("slots"), named("prefix_lens"),
         named("ancestor_slots"), named("ancestor_starts"), named("page_ids"), named("page_starts"));
}

using ExecutorClass = nb::class_<Executor>;

void construct(Executor* self, int hidden, int intermediate, int heads, int kv_heads, int head_dim, int vocab,
               float norm_eps, float embedding_scale, float attention_scale, bool gelu, int layers, bool kv_f16, int num_pages, int threads,
               const std::string& path) {
  require(hidden > 0 && intermediate > 0 && heads > 0 && kv_heads > 0 && head_dim > 0 && vocab > 0 && layers > 0,
          "sizes must be positive");
  require(heads % kv_heads == 0 && heads / kv_heads <= kMaxGroup, "query heads a K/V head out of range");
  require(num_pages > 0 && threads > 0 && threads <= 1024, "pages and threads must be positive");
  const Shape shape = {hidden, intermediate, heads,           kv_heads,        head_dim,
                       vocab,  norm_eps,     embedding_scale, attention_scale, gelu};
  new (self) Executor(shape, layers, kv_f16, num_pages, threads, kernels_named(path));
}

void bind_weights(ExecutorClass& c) {
  c.def("__init__", &construct, nb::kw_only(), nb::arg("hidden"), nb::arg("intermediate"), nb::arg("heads"),
        nb::arg("kv_heads"), nb::arg("head_dim"), nb::arg("vocab"), nb::arg("norm_eps"),
        nb::arg("embedding_scale"), nb::arg("attention_scale"), nb::arg("gelu"), nb::arg("layers"), nb::arg("kv_f16"), nb::arg("num_pages"), nb::arg("threads"), nb::arg("path"));
  c.def_prop_ro("kernel_name", &Executor::kernel_name);
  c.def("use_threads", [](Executor& e, int threads) {
    require(threads >= 1 && threads <= e.max_threads(), "threads out of range");
    e.use_threads(threads);
  });
  c.def("set_embedding", [](Executor& e, nb::object embedding) {
    const PackedMatrix packed = matrix_of(embedding);
    require_shape(packed, e.shape().vocab, e.shape().hidden);
    e.set_embedding(packed);
  });
  c.def("set_head", [](Executor& e, nb::object head, nb::object norm) {
    const PackedMatrix packed = matrix_of(head);
    require_shape(packed, e.shape().vocab, e.shape().hidden);
    e.set_head(packed, vector_of(norm, e.shape().hidden));
  });
  c.def("add_head", &add_head, nb::kw_only(), nb::arg("matrix"), nb::arg("norm"), nb::arg("input_norm").none(),
        nb::arg("down").none(), nb::arg("up").none());
  c.def("add_layer", &add_layer);
  c.def("set_rope", [](Executor& e, int index, In2<float> cosines, In2<float> sines) {
    const size_t half = cosines.shape(1);
    require(half > 0 && 2 * half <= static_cast<size_t>(e.shape().head_dim), "rope table has the wrong width");
    require(cosines.shape(0) == sines.shape(0) && half == sines.shape(1), "rope tables differ in shape");
    require(index >= 0 && index <= e.num_ropes(), "rope tables are set in order");
    e.set_rope(index, {cosines.data(), sines.data(), static_cast<int>(cosines.shape(0)), static_cast<int>(2 * half)});
  }, nb::arg(), kAsIs, kAsIs);
}

void bind_layers(ExecutorClass& c) {
  c.def("embed", [](Executor& e, const RowArrays& rows, Out2<float> h) {
    const RowsView view = rows_for(e, rows, h);
    nb::gil_scoped_release release;
    e.embed(view, h.data());
  }, nb::arg(), kAsIs);
  c.def("run_layers", [](Executor& e, Out2<float> h, const RowArrays& rows, int start, int stop) {
    const RowsView view = rows_for(e, rows, h);
    e.check_layers(start, stop);
    nb::gil_scoped_release release;
    e.run_layers(h.data(), view, start, stop);
  }, kAsIs, nb::arg(), nb::arg(), nb::arg());
  c.def("fill", [](Executor& e, In2<float> h, const RowArrays& rows, int start, int stop) {
    const RowsView view = rows_for(e, rows, h);
    e.check_layers(start, stop);
    nb::gil_scoped_release release;
    e.fill(h.data(), view, start, stop);
  }, kAsIs, nb::arg(), nb::arg(), nb::arg());
  c.def("copy_slots", [](Executor& e, In1<int32_t> source, In1<int32_t> target) {
    require(source.size() == target.size(), "copy_slots: as many sources as targets");
    e.check_slots(source.data(), static_cast<int64_t>(source.size()));
    e.check_slots(target.data(), static_cast<int64_t>(target.size()));
    nb::gil_scoped_release release;
    e.copy_slots(source.data(), target.data(), static_cast<int64_t>(source.size()));
  }, kAsIs, kAsIs);
}

void bind_head(ExecutorClass& c) {
  const auto number = nb::arg("head") = 0;  // the model's own
  c.def("logits", [](Executor& e, In2<float> h, Out2<float> out, int head) {
    require(out.shape(0) == h.shape(0) && out.shape(1) == outputs_for(e, head, h), "logits target has the wrong shape");
    nb::gil_scoped_release release;
    e.logits(head, h.data(), static_cast<int>(h.shape(0)), nullptr, 0, out.data());
  }, kAsIs, kAsIs, number);
  c.def("logits_subset", [](Executor& e, In2<float> h, In1<int32_t> ids, Out2<float> out, int head) {
    const int32_t outputs = static_cast<int32_t>(outputs_for(e, head, h));
    require(out.shape(0) == h.shape(0) && out.shape(1) == ids.size(), "logits target has the wrong shape");
    for (size_t i = 0; i < ids.size(); ++i)
      require(ids.data()[i] >= 0 && ids.data()[i] < outputs, "vocabulary id out of range");
    nb::gil_scoped_release release;
    e.logits(head, h.data(), static_cast<int>(h.shape(0)), ids.data(), static_cast<int64_t>(ids.size()), out.data());
  }, kAsIs, kAsIs, kAsIs, number);
  c.def("summarize", [](Executor& e, In2<float> h, Out2<float> logits, Out1<int32_t> best, Out2<float> scores, int head) {
    require(logits.shape(0) == h.shape(0) && logits.shape(1) == outputs_for(e, head, h), "logits target has the wrong shape");
    require(best.size() == h.shape(0) && scores.shape(0) == h.shape(0) && scores.shape(1) == kScores,
            "summary targets have the wrong shape");
    nb::gil_scoped_release release;
    e.summarize(head, h.data(), static_cast<int>(h.shape(0)), logits.data(), best.data(), scores.data());
  }, kAsIs, kAsIs, kAsIs, kAsIs, number);
  c.def("top", [](Executor& e, In2<float> h, Out2<int32_t> ids, Out2<float> logits, Out1<float> log_sum_exp, int head) {
    const size_t outputs = outputs_for(e, head, h), n = h.shape(0), k = ids.shape(1);
    require(ids.shape(0) == n && logits.shape(0) == n && logits.shape(1) == k && log_sum_exp.size() == n,
            "top targets have the wrong shape");
    require(k >= 1 && k <= outputs, "k out of range");
    nb::gil_scoped_release release;
    e.top(head, h.data(), static_cast<int>(n), static_cast<int>(k), ids.data(), logits.data(), log_sum_exp.data());
  }, kAsIs, kAsIs, kAsIs, kAsIs, number);
}

// h [chosen][hidden]. Returns for each chosen row k pairs of a token and its share; `known` are the head's tokens.
nb::list run_joined(Executor& e, int join, const RowArrays& rows, In2<float> states, In1<int32_t> chosen, Out2<float> h,
                    int head, int k, In1<int32_t> known) {
  const RowsView view = rows.view();
  const size_t n = chosen.size(), hidden = e.shape().hidden;
  e.check(view);
  require(states.shape(0) == static_cast<size_t>(view.rows) && states.shape(1) == (e.join_parts(join) - 1) * hidden,
          "states have the wrong shape");
  for (size_t i = 0; i < n; ++i) {
    require(chosen.data()[i] > (i ? chosen.data()[i - 1] : -1) && chosen.data()[i] < view.rows, "chosen rows must rise");
  }
  require(h.shape(0) == n && h.shape(1) == hidden, "hidden target has the wrong shape");
  require(k >= 0 && k <= e.head_outputs(head), "k out of range");
  require(static_cast<int>(known.size()) == e.head_outputs(head), "not the tokens of the head");
  std::vector<int32_t> places(n * k);
  std::vector<float> shares(n * k);
  {
    nb::gil_scoped_release release;
    e.run_joined(join, view, states.data(), chosen.data(), static_cast<int>(n), h.data(), head, k, places.data(),
                 shares.data());
  }
  nb::list guesses;
  for (size_t r = 0; k > 0 && r < n; ++r) {
    nb::list row;
    for (size_t i = r * k; i < (r + 1) * k; ++i) row.append(nb::make_tuple(known.data()[places[i]], shares[i]));
    guesses.append(row);
  }
  return guesses;
}

void bind_side(ExecutorClass& c) {
  c.def("add_join", &add_join);
  c.def("run_joined", &run_joined, nb::arg(), nb::arg(), kAsIs, kAsIs, kAsIs, nb::arg(), nb::arg(), kAsIs);
}

// The summaries of given logits, by one thread.
void bind_summary(nb::module_& m) {
  m.def("summarize", [](In2<float> logits, Out1<int32_t> best, Out2<float> scores, const std::string& path) {
    const int64_t rows = logits.shape(0), width = logits.shape(1);
    require(width >= 1, "no logits");
    require(static_cast<int64_t>(best.size()) == rows && static_cast<int64_t>(scores.shape(0)) == rows &&
                scores.shape(1) == kScores,
            "summary targets have the wrong shape");
    const Kernels& kernels = kernels_named(path);
    nb::gil_scoped_release release;
    for (int64_t r = 0; r < rows; ++r) {
      best.data()[r] = summarize_row(kernels, logits.data() + r * width, width, scores.data() + r * kScores);
    }
  }, kAsIs, kAsIs, kAsIs, nb::arg("path"));
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // a daemon thread may hold an executor when the interpreter ends
  bind_packing(m);
  bind_rows(m);
  ExecutorClass executor(m, "Executor");
  bind_weights(executor);
  bind_layers(executor);
  bind_head(executor);
  bind_side(executor);
  bind_summary(m);
  bind_sampling(m);
  bind_suffix(m);
  m.def("kernel_paths", &kernel_paths);
  m.attr("F32") = nb::int_(static_cast<int>(kF32));
  m.attr("Q8") = nb::int_(static_cast<int>(kQ8));
  m.attr("Q4") = nb::int_(static_cast<int>(kQ4));
  m.attr("LANES") = nb::int_(kLanes);
  m.attr("MAX_GROUP") = nb::int_(kMaxGroup);
}
