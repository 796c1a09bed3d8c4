// The cost model: how long a plan takes on a topology, and what that time is spent on.
//
// It reads the same trees as the executor's steps. Every directed link carries the bytes of all
// messages that pass it, so contention on shared links and switch ports is counted; every rank's
// core encodes, adds, decodes, sends and receives what the plan makes it. What takes longest
// decides:
//
//   time = max(max(wire, cpu, memory) + ends, chunk) + call
//
// wire: the busiest link's bytes at its goodput, and what several flows lose at a switch's port.
// cpu: the busiest machine's core seconds over its cores; pipelining hides the wire behind it or it
// behind the wire, but ranks that share cores add up. memory: what a machine's ranks read and write
// once. ends: what nothing hides, the first slice's encoding, the last one's last hop and decoding.
// chunk: one chunk's way alone, its first slice hop by hop, then the rest of it; where chunks are
// single messages, also the other messages that a core has to serve meanwhile. Of both, a link with
// a token bucket lets through at once what the bucket holds: it fills while the link rests, and
// calls follow each other. call: what a call costs whatever it does.
//
// Thread safety: pure functions. Invariant: the same numbers on every rank, given the same input.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace tersum {

// What one core does with one codec, in bytes of values (not of wire) per second.
struct CodecRates {
  double encode = 0;
  double combine = 0;  // decodes one peer, adds the own values, encodes the sum
  double add = 0;      // each further peer of a combine
  double decode = 0;
  double wire_ratio = 1;  // wire bytes per byte of values: 130 / 512 for int8/128 of float32
};

// What machines, links and the engine cost, beside the topology's rates and latencies.
struct MachineRates {
  double send_s_per_byte = 0.131e-9;  // TCP: a core's time per wire byte
  double receive_s_per_byte = 0.064e-9;
  double read_s_per_byte = 1 / 83e9;  // a peer's shared memory, per wire byte
  double memory_bytes_per_s = 38e9;   // all cores of a machine together
  double cache_bytes = 32e6;          // arrays that fit do not reach memory
  double message_s = 1e-6;            // a core's time per message, at either end
  double local_latency_s = 1e-6;      // one message between ranks of a machine
  double call_s = 5e-6;               // of a call, whatever it does
  double goodput = 1448.0 / 1514;     // of a link's rate, for payload: TCP segments in frames
  // Of a port's time on the wire, for each further flow (pair of ranks) that shares it with the
  // first: their bursts queue at one port of a switch while others run dry; less where each has
  // little under way (flow_window.h). Fitted to every plan over sizes on star8 (docs/plans.md),
  // that is to one to seven flows.
  double port_share = 0.01;
  double limited_port_share = 0.002;
  int port_flows_max = 7;  // of more, nothing is known: they are taken to cost as much
  // Of the cores' time, what links with buckets wait for. Fitted to the same plans on nine
  // topologies.
  double waited_cpu = 0.5;
  int cores = 1;  // of a machine
  // All hosts are namespaces of one machine (`tersum perf --topology`): they share its cores.
  bool one_machine = false;
  // As the executor cuts chunks (compiled_plan.h): on the wire, and the values of it between hosts.
  size_t slice_bytes = 63 * 1024;
  size_t slice_values = 63 * 1024;
};

enum class CostTerm { kWire, kCodec, kTransport, kMemory, kLatency };
// "wire", "codec", "transport", "memory", "latency".
std::string_view cost_term_name(CostTerm term);

struct PlanCost {
  double time_s = 0;
  double wire_s = 0;
  double ports_s = 0;  // what flows that share a switch's port add to that
  double cpu_s = 0;
  double memory_s = 0;
  double chunk_s = 0;
  double ends_s = 0;
  double codec_share = 0;  // of cpu_s, the rest is the transport's
  int hops = 0;            // dependent messages
  CostTerm dominant = CostTerm::kWire;
};

// What is to be moved. `value_bytes`: of the whole array (PlanRequest::count elements).
struct CostRequest {
  Collective collective = Collective::kAllReduce;
  double value_bytes = 0;
  double element_bytes = 4;
  int root = 0;
  const Topology* topology = nullptr;  // not null; borrowed for the call
  CodecRates codec;
  MachineRates machine;
};

// kInvalidArgument where make_plan would refuse the plan, and says why in the same words, without
// the plans that would fit.
Result<PlanCost> price_plan(const CostRequest& request, PlanKind kind);

// The least time in which any plan could do it, by its links alone: no host can take in or give out
// faster than its links are, and all links together carry what all hosts must be sent.
double wire_bound_s(const CostRequest& request);

struct PricedPlan {
  PlanKind kind = PlanKind::kAuto;
  Result<PlanCost> cost = PlanCost{};  // or why the plan does not fit
};
// Every plan that serves the collective, the quickest first, misfits last. Plans within 0.5 % of
// the quickest count as equally quick: of them one that needs the cores little and has few
// dependent messages comes first.
std::vector<PricedPlan> price_plans(const CostRequest& request);

// The quickest plan; two_step where none fits.
PlanKind choose_plan_by_cost(const CostRequest& request);

// Rates of a core for "exact" (of float32), "bf16", "int8/<block>" and "int4/<block>" as measured
// on the machine that docs/plans.md names, for who has measured none: those of arrays in L3.
CodecRates typical_codec_rates(std::string_view codec);

}  // namespace tersum
