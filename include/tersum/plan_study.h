// What a collective would cost on machines that one need not have: every plan's predicted time on a
// described topology, the bound that its links set, and what decides.
//
// Thread safety: any thread. Invariant: nothing is measured, so that the same options give the same
// numbers anywhere, unless the options ask for it; the costs of cores and codecs are those that
// docs/plans.md lists otherwise.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/data_type.h"
#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

struct PlanStudyOptions {
  // A name ("ring8", "torus4x4", "mesh4", "star8", "pair"), or the text of a topology file
  // (docs/topologies.md), which begins with a brace.
  std::string_view topology;
  // Of every link of a topology that has a name; a file has its own.
  std::string_view rate = "1gbit";
  double latency_us = 20;
  Collective collective = Collective::kAllReduce;
  // Of the whole array: each rank's input of all_reduce, reduce_scatter and (times the size)
  // all_to_all; the output of all_gather. Rounded down to whole elements.
  size_t bytes = 0;
  DataType type = DataType::kFloat32;
  std::string_view codec = "int8/128";
  // Of each machine; ranks that share them wait for each other.
  int cores = 1;
  // All hosts are namespaces of one machine and share its cores.
  bool one_machine = false;
  // Every machine's cores code as fast as this one does now, which is timed: some milliseconds for
  // a codec that this process has not timed yet. Formats of sums that agree on scales cannot be.
  bool measure_codec = false;
};

struct PlanPrediction {
  PlanKind plan = PlanKind::kAuto;
  std::string misfit;  // why the plan cannot run there; empty when it can. The rest is then set.
  double time_s = 0;
  double wire_s = 0;     // the busiest link
  double cpu_s = 0;      // the busiest machine's cores
  double memory_s = 0;   // its memory
  double chain_s = 0;    // the longest chain of dependent messages
  int hops = 0;          // messages in it
  std::string dominant;  // "wire", "codec", "transport", "memory" or "latency"
};

struct PlanStudy {
  std::string topology;
  int ranks = 0;
  int hosts = 0;
  double wire_bytes = 0;  // the whole array on its way, scales that are agreed on included
  double bound_s = 0;     // no plan can be quicker: the links alone
  bool measured = false;  // the codec's rates are this machine's
  // What a call that names this codec and neither plan nor error takes in a group whose topology
  // file describes these links, and that was not tuned; kAuto: it is refused. As docs/plans.md says
  // by documented rates, whatever the options say of cores and codec, and only of larger sums in
  // groups of up to 64 ranks: another than the quickest where that gains less than 3 %, or costs
  // more error than such a call allows.
  PlanKind open_plan = PlanKind::kAuto;
  // The quickest first (of those within 0.5 % of it, one that needs the cores little and has few
  // dependent messages), then those that do not fit.
  std::vector<PlanPrediction> plans;
};

// kInvalidArgument: a topology, rate, codec or number that makes no sense; a file's error names the
// line.
Result<PlanStudy> study_plans(const PlanStudyOptions& options);

}  // namespace tersum
