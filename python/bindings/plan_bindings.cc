// Predictions of plans on topologies.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "tersum/plan_study.h"

namespace tersum::python {

namespace nb = nanobind;

namespace {

// plan, misfit, time, wire, cpu, memory, chain (seconds), hops, dominant
using Prediction =
    std::tuple<std::string, std::string, double, double, double, double, double, int, std::string>;
// topology, ranks, hosts, wire bytes, bound (seconds), codec measured, open plan, predictions
using Study =
    std::tuple<std::string, int, int, double, double, bool, std::string, std::vector<Prediction>>;

Study study(const std::string& topology, const std::string& rate, double latency_us,
            const std::string& op, size_t bytes, const std::string& dtype, const std::string& codec,
            int cores, bool one_machine, bool measure_codec) {
  PlanStudyOptions options;
  options.topology = topology;
  options.rate = rate;
  options.latency_us = latency_us;
  options.collective = collective_or_throw(op);
  options.bytes = bytes;
  options.type = data_type_or_throw(dtype);
  options.codec = codec;
  options.cores = cores;
  options.one_machine = one_machine;
  options.measure_codec = measure_codec;
  Result<PlanStudy> result = [&] {
    // A thousand ranks take seconds.
    const nb::gil_scoped_release release;
    return study_plans(options);
  }();
  const PlanStudy made = value_or_throw(std::move(result));
  std::vector<Prediction> plans;
  for (const PlanPrediction& p : made.plans) {
    plans.emplace_back(std::string(plan_kind_name(p.plan)), p.misfit, p.time_s, p.wire_s, p.cpu_s,
                       p.memory_s, p.chain_s, p.hops, p.dominant);
  }
  const bool is_refused = made.open_plan == PlanKind::kAuto;
  const std::string open_plan(is_refused ? "" : plan_kind_name(made.open_plan));
  return {made.topology, made.ranks,    made.hosts, made.wire_bytes,
          made.bound_s,  made.measured, open_plan,  std::move(plans)};
}

}  // namespace

void bind_plans(nb::module_& module) {
  module.def("study_plans", &study, nb::arg("topology"), nb::arg("rate"), nb::arg("latency_us"),
             nb::arg("op"), nb::arg("bytes"), nb::arg("dtype"), nb::arg("codec"), nb::arg("cores"),
             nb::arg("one_machine"), nb::arg("measure_codec"),
             "Topology, ranks, hosts, wire bytes, bound in seconds, whether the codec was "
             "measured, what an open plan becomes, and every plan's prediction.");
}

}  // namespace tersum::python
