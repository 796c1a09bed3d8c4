// What this build and this CPU can do, and what codecs cost.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "tersum/codec_info.h"
#include "tersum/codec_payload.h"
#include "tersum/codec_speed.h"
#include "tersum/core_distance.h"
#include "tersum/isa.h"
#include "tersum/topology_info.h"
#include "tersum/version.h"

namespace tersum::python {

namespace nb = nanobind;

namespace {

using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bounds = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::tuple<std::string, std::string, uint32_t, bool, double> describe_codec(
    const std::string& spec, const std::string& dtype, const std::string& op) {
  const CodecInfo info =
      value_or_throw(codec_info(spec, data_type_or_throw(dtype), reduce_op_or_throw(op)));
  return {info.spec, std::string(data_type_name(info.value_type)), info.block, info.lossless,
          info.wire_bits};
}

using OutBytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Payload = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// `values`: contiguous, as bytes.
nb::bytes encode_bytes(const std::string& spec, const std::string& dtype, Payload values,
                       uint64_t rounding) {
  const DataType type = data_type_or_throw(dtype);
  const std::vector<std::byte> payload = value_or_throw(
      encode_payload(spec, type, values.data(), values.size() / element_bytes(type), rounding));
  return nb::bytes(payload.data(), payload.size());
}

void decode_bytes(const std::string& spec, const std::string& dtype, const nb::bytes& payload,
                  OutBytes values) {
  const DataType type = data_type_or_throw(dtype);
  const std::span bytes(static_cast<const std::byte*>(payload.data()), payload.size());
  throw_if_error(
      decode_payload(spec, type, bytes, values.size() / element_bytes(type), values.data()));
}

// bounds[i] for a block whose largest magnitude is absmax[i].
void codec_error_bounds(const std::string& spec, const std::string& dtype, Doubles absmax,
                        Bounds bounds) {
  if (absmax.size() != bounds.size()) {
    throw_status(invalid_argument("absmax and bounds must have equal lengths"));
  }
  const DataType type = data_type_or_throw(dtype);
  for (size_t i = 0; i < absmax.size(); ++i) {
    bounds.data()[i] = value_or_throw(codec_block_error_bound(spec, absmax.data()[i], type));
  }
}

using Wire = std::tuple<int, int, double, double, double>;
using TopologyParts = std::tuple<std::string, int, std::vector<int>, std::vector<std::string>,
                                 std::vector<std::string>, std::vector<Wire>, std::vector<int>>;

TopologyParts topology_parts(const std::string& text, const std::string& rate, double latency_us) {
  TopologyInfo info = value_or_throw(read_topology(text, rate, latency_us));
  std::vector<Wire> wires;
  for (const TopologyWire& wire : info.wires) {
    wires.emplace_back(wire.left, wire.right, wire.bits_per_s, wire.latency_us, wire.burst_bytes);
  }
  const auto ranks = static_cast<int>(info.host_of.size());
  return {info.name,
          ranks,
          std::move(info.host_of),
          std::move(info.hosts),
          std::move(info.switches),
          std::move(wires),
          std::move(info.dims)};
}

// Numbers that codecs are made of, and how levels are found.
void bind_learned_numbers(nb::module_& module) {
  module.def(
      "register_table",
      [](Floats levels) {
        return value_or_throw(register_table(std::span(levels.data(), levels.size())));
      },
      nb::arg("levels"), "The spec of these levels.");
  module.def(
      "learn_levels",
      [](Doubles parts, Doubles weights, size_t count) {
        return value_or_throw(learn_levels(std::span(parts.data(), parts.size()),
                                           std::span(weights.data(), weights.size()), count));
      },
      nb::arg("parts"), nb::arg("weights"), nb::arg("count"), "The best levels, ascending.");
  module.def(
      "register_kronecker",
      [](Floats p1, Floats p2, Floats diagonal) {
        return value_or_throw(register_kronecker(std::span(p1.data(), p1.size()),
                                                 std::span(p2.data(), p2.size()),
                                                 std::span(diagonal.data(), diagonal.size())));
      },
      nb::arg("p1"), nb::arg("p2"), nb::arg("diagonal"), "The modifier of these matrices.");
}

}  // namespace

void bind_info(nb::module_& module) {
  module.attr("version") = TERSUM_VERSION;
  module.attr("wire_version") = static_cast<int>(kWireVersion);
  module.def("active_isa", &active_isa, "The instruction set in use, e.g. \"avx3\".");
  module.def("available_isas", &available_isas, "All that this CPU can run, best first.");
  module.def("known_codecs", &known_codecs, "The formats, without block.");
  bind_learned_numbers(module);
  module.def(
      "auto_codecs", [](const std::string& codec) { return value_or_throw(auto_codecs(codec)); },
      nb::arg("codec"), "Among which codecs calls of \"auto\" or \"auto:LIST\" choose.");
  module.def("codec_info", &describe_codec, nb::arg("spec"), nb::arg("dtype"), nb::arg("op"),
             "Normal form, element type, block, lossless, bits per value.");
  module.def(
      "codec_wire_bytes",
      [](const std::string& spec, size_t count, const std::string& dtype) {
        return value_or_throw(codec_wire_bytes(spec, count, data_type_or_throw(dtype)));
      },
      nb::arg("spec"), nb::arg("count"), nb::arg("dtype"), "Bytes of `count` values on the wire.");
  module.def(
      "codec_sum_bits",
      [](const std::string& spec, uint32_t ranks, const std::string& dtype) {
        return value_or_throw(codec_sum_bits(spec, ranks, data_type_or_throw(dtype)));
      },
      nb::arg("spec"), nb::arg("ranks"), nb::arg("dtype"), "Bits per value of an all-reduce.");
  module.def(
      "core_distance_ns",
      [](int first_cpu, int second_cpu) {
        // The measuring threads do not need the interpreter, and others may.
        const nb::gil_scoped_release unlocked;
        const Result<double> distance = core_distance_ns(first_cpu, second_cpu);
        return distance.ok() ? distance.value() : -1.0;
      },
      nb::arg("first_cpu"), nb::arg("second_cpu"),
      "Nanoseconds, one way, for a cache line between two CPUs; negative: not measurable.");
  module.def("encode_payload", &encode_bytes, nb::arg("spec"), nb::arg("dtype"), nb::arg("values"),
             nb::arg("rounding"), "The payload of values given as bytes.");
  module.def("decode_payload", &decode_bytes, nb::arg("spec"), nb::arg("dtype"), nb::arg("payload"),
             nb::arg("values"), "Decodes a payload into the bytes of values.");
  module.def(
      "codec_speed",
      [](const std::string& spec, Floats values, size_t rounds) {
        const std::span<const float> view(values.data(), values.size());
        const CodecSpeed speed = value_or_throw([&] {
          const nb::gil_scoped_release unlocked;
          return measure_codec_speed(spec, view, rounds);
        }());
        return std::tuple(speed.encode, speed.decode_add);
      },
      nb::arg("spec"), nb::arg("values"), nb::arg("rounds"),
      "Encoding and decode-adding, as multiples of memcpy's speed.");
  module.def("codec_error_bounds", &codec_error_bounds, nb::arg("spec"), nb::arg("dtype"),
             nb::arg("absmax"), nb::arg("bounds"),
             "Fills `bounds` with each block's largest error.");
  module.def("read_topology", &topology_parts, nb::arg("text"), nb::arg("rate"),
             nb::arg("latency_us"), "Name, ranks, hosts, switches, wires, extents.");
}

}  // namespace tersum::python
