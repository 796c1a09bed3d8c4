#include "xla/hlo_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "tersum/options.h"
#include "xla/hlo_bf16_proof.h"
#include "xla/hlo_collectives.h"
#include "xla/hlo_edit.h"
#include "xla/hlo_fingerprint.h"
#include "xla/hlo_graph.h"
#include "xla/hlo_groups.h"
#include "xla/hlo_proto.h"

namespace tersum {
namespace {

// A collective and where it stands.
struct Candidate {
  HloNode node = kNoHloNode;
  HloCollective fields;
};

// What is known once an operation is to be rewritten.
struct Rewrite {
  HloGroups groups;
  std::string codec;
  // The proof in hlo_bf16_proof.h, asked for under the exact codec: its first half, and all of it.
  bool operands_are_bf16 = false;
  bool wire_bf16 = false;
};

// Why an operation stays as it is. An error: the program asked for what cannot be done.
struct Refusal {
  HloOutcome outcome = HloOutcome::kLeftAlone;
  std::string reason;
};

std::string sentence(std::string_view text) {
  std::string out = std::string(text) + ".";
  if (out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 'a' + 'A');
  return out;
}

// Text as an MLIR string: quotes, backslashes and unprintable bytes as two hex digits.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\') {
      out += fmt::format("\\{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string describe_groups(const HloGroups& groups) {
  if (groups.group_count() == 1) return fmt::format("1 group of {}", groups.group_size);
  return fmt::format("{} groups of {}", groups.group_count(), groups.group_size);
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t comma = text.find(',');
    out.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

class Pass {
 public:
  Pass(const HloModule& module, const HloPassOptions& options, std::string default_codec)
      : module_(module),
        options_(options),
        default_codec_(std::move(default_codec)),
        graph_(module),
        local_(options.local_devices.begin(), options.local_devices.end()) {
    for (size_t process = 0; process < options.processes.size(); ++process) {
      for (const int64_t device : options.processes[process]) process_of_[device] = process;
    }
  }

  Result<HloPassOutput> run() {
    auto assignment = parse_hlo_device_assignment(module_.device_assignment);
    if (!assignment.ok()) return assignment.status();
    assignment_ = std::move(assignment).value();
    TERSUM_RETURN_IF_ERROR(find_candidates());
    for (size_t i = 0; i < candidates_.size(); ++i) {
      TERSUM_RETURN_IF_ERROR(treat(candidates_[i], static_cast<int64_t>(i)));
    }
    if (!replacements_.empty()) {
      auto edited = replace_hlo_instructions(module_.bytes, replacements_);
      if (!edited.ok()) return edited.status();
      output_.module = std::move(edited).value();
      output_.changed = true;
    }
    return std::move(output_);
  }

 private:
  Status find_candidates() {
    HloFingerprint fingerprint(module_, assignment_);
    for (HloNode node = 0; node < graph_.node_count(); ++node) {
      const HloInstruction& instruction = graph_.at(node);
      if (!is_hlo_collective(instruction.opcode)) continue;
      auto fields = parse_hlo_collective(instruction.bytes);
      if (!fields.ok()) return fields.status();
      fingerprint.add(instruction.opcode, fields.value());
      candidates_.push_back({node, std::move(fields).value()});
    }
    fingerprint_ = fingerprint.value();
    return ok_status();
  }

  // Decides about one collective, writes its row and, perhaps, its replacement.
  Status treat(const Candidate& candidate, int64_t operation) {
    HloReportRow row = first_row(candidate, operation);
    Rewrite rewrite;
    const Refusal refusal = decide(candidate, row, rewrite);
    row.outcome = refusal.outcome;
    row.reason = refusal.reason;
    if (refusal.outcome == HloOutcome::kRewritten) {
      row.codec = rewrite.codec;
      row.wire_bf16 = rewrite.wire_bf16;
      TERSUM_RETURN_IF_ERROR(replace(candidate, row, rewrite));
    }
    output_.rows.push_back(std::move(row));
    return ok_status();
  }

  HloReportRow first_row(const Candidate& candidate, int64_t operation) const {
    const HloInstruction& instruction = graph_.at(candidate.node);
    const HloPayload payload = measure_payload(graph_, candidate.node);
    HloReportRow row;
    row.module = module_.name;
    row.instruction = instruction.name;
    row.opcode = instruction.opcode;
    row.op_name = candidate.fields.op_name;
    row.element_type = describe_element_types(graph_, candidate.node);
    row.elements = payload.elements;
    row.bytes = payload.bytes;
    row.operation = operation;
    row.fingerprint = fingerprint_;
    row.channels = operand_channels(graph_, candidate.node);
    row.promoted = is_promoted(graph_, candidate.node);
    return row;
  }

  // kRewritten with what is to be written in `rewrite`, or why not. Fills in the row's groups.
  Refusal decide(const Candidate& candidate, HloReportRow& row, Rewrite& rewrite) const {
    const auto leave = [](std::string_view why) {
      return Refusal{HloOutcome::kLeftAlone, sentence(why)};
    };
    Status status = check_place(candidate.node);
    if (!status.ok()) return leave(status.message());

    auto groups = resolve_hlo_groups(candidate.fields, assignment_);
    if (groups.ok()) row.groups = describe_groups(groups.value());

    Refusal choice = choose_codec(candidate, rewrite.codec);
    if (choice.outcome != HloOutcome::kRewritten) return choice;
    status = check_plain_sum(graph_, candidate.node, candidate.fields);
    if (status.ok() && !groups.ok()) status = groups.status();
    if (status.ok()) status = check_groups(candidate, groups.value());
    if (status.ok()) status = check_size(row);
    if (!status.ok()) return leave(status.message());

    rewrite.groups = std::move(groups).value();
    if (row.promoted && rewrite.codec == kHloExactCodec) {
      rewrite.operands_are_bf16 = are_bf16_in_f32(graph_, candidate.node);
      rewrite.wire_bf16 = rewrite.operands_are_bf16 && is_only_read_as_bf16(graph_, candidate.node);
    }
    return {HloOutcome::kRewritten, explain(candidate, row, rewrite)};
  }

  Status check_place(HloNode node) const {
    const std::string_view opcode = graph_.at(node).opcode;
    if (opcode.ends_with("-start")) {
      return unsupported("XLA made it asynchronous; tersum rewrites the synchronous form");
    }
    if (opcode != "all-reduce" && opcode != "reduce-scatter") {
      return unsupported("tersum rewrites all-reduce and reduce-scatter");
    }
    const size_t index = graph_.computation_of(node);
    const HloComputation& computation = module_.computations[index];
    if (computation.is_fusion || graph_.is_called_by(index, "fusion")) {
      return unsupported("it is part of a fusion");
    }
    const bool on_main_thread =
        computation.execution_thread.empty() || computation.execution_thread == "main";
    if (!on_main_thread || graph_.is_called_by(index, "async-start")) {
      return unsupported("XLA made it asynchronous; tersum rewrites the synchronous form");
    }
    return ok_status();
  }

  // A choice of "auto", or of "auto:LIST", with the error that stands for all of them; of
  // "auto:E", which has one, and of codecs, as it is.
  std::string with_error(std::string_view choice) const {
    const bool is_auto = choice == kHloChoiceAuto || choice.starts_with("auto:");
    const std::string_view behind = choice.substr(std::min(choice.size(), kHloChoiceAuto.size()));
    const bool has_error =
        behind.size() > 1 && (behind[1] == '.' || (behind[1] >= '0' && behind[1] <= '9'));
    if (!is_auto || has_error || options_.auto_codec.empty()) return std::string(choice);
    return options_.auto_codec + std::string(behind);
  }

  // The codec by the operation's own choice, or the default. XLA's all-reduce combiner joins the
  // choices of the operations that it merges with commas, each distinct one once, and forgets which
  // operand had which (and which had none).
  Refusal choose_codec(const Candidate& candidate, std::string& codec) const {
    const auto& attributes = candidate.fields.frontend_attributes;
    const auto chosen = std::find_if(attributes.begin(), attributes.end(), [](const auto& entry) {
      return entry.first == kHloChoiceAttribute;
    });
    if (chosen == attributes.end()) {
      codec = default_codec_;
      if (codec != kHloChoiceOff) return {HloOutcome::kRewritten, ""};
      return {HloOutcome::kLeftAlone, "The default is \"off\" and it chooses nothing itself."};
    }
    for (const std::string_view part : split_at_commas(chosen->second)) {
      std::string canonical(kHloChoiceOff);
      if (part != kHloChoiceOff) {
        auto checked = options_.canonical_codec(with_error(part));
        if (!checked.ok()) {
          return {HloOutcome::kError,
                  fmt::format("It asks for tersum={}, but: {}.", quoted(chosen->second),
                              checked.status().message())};
        }
        canonical = std::move(checked).value();
      }
      if (!codec.empty() && codec != canonical) {
        return {HloOutcome::kError,
                fmt::format("XLA combined operations that chose {} into this one, which can have "
                            "only one codec; compile with "
                            "xla_disable_hlo_passes=cpu-all-reduce-combiner to keep them apart.",
                            quoted(chosen->second))};
      }
      codec = std::move(canonical);
    }
    if (codec != kHloChoiceOff) return {HloOutcome::kRewritten, ""};
    return {HloOutcome::kLeftAlone, "It asks for tersum=\"off\"."};
  }

  Status check_groups(const Candidate& candidate, const HloGroups& groups) const {
    if (groups.group_size == 1) return unsupported("each group is a single device");
    if (graph_.at(candidate.node).opcode == "reduce-scatter") {
      if (!groups.order_is_certain) {
        return unsupported("the order of its shards depends on the version of XLA");
      }
      TERSUM_RETURN_IF_ERROR(
          check_scatter(graph_, candidate.node, candidate.fields, groups.group_size));
    }
    return check_locality(groups);
  }

  // Whether this process has a wire to save here. A group that crosses processes counts as such in
  // each of them, so its members agree; a local one is nobody else's business.
  Status check_locality(const HloGroups& groups) const {
    if (!process_of_.empty()) return check_locality_everywhere(groups);
    if (local_.empty()) return ok_status();
    bool has_local = false;
    const auto size = static_cast<size_t>(groups.group_size);
    for (size_t first = 0; first < groups.devices.size(); first += size) {
      const auto begin = groups.devices.begin() + static_cast<std::ptrdiff_t>(first);
      const auto mine = std::count_if(begin, begin + groups.group_size,
                                      [this](int64_t device) { return local_.contains(device); });
      if (mine > 0 && mine < groups.group_size) return ok_status();
      has_local = has_local || mine > 0;
    }
    if (!has_local) return unsupported("none of its devices belongs to this process");
    if (options_.rewrite_local_groups) return ok_status();
    return unsupported("its groups lie within this process, so there is no wire to save");
  }

  // Whether any process has a wire to save here: the same answer in all of them.
  Status check_locality_everywhere(const HloGroups& groups) const {
    if (options_.rewrite_local_groups) return ok_status();
    const auto size = static_cast<size_t>(groups.group_size);
    for (size_t i = 0; i < groups.devices.size(); ++i) {
      const auto first = process_of_.find(groups.devices[i - i % size]);
      const auto here = process_of_.find(groups.devices[i]);
      if (first == process_of_.end() || here == process_of_.end()) {
        return unsupported(fmt::format("device {} belongs to no known process", groups.devices[i]));
      }
      if (first->second != here->second) return ok_status();
    }
    return unsupported("its groups lie within one process each, so there is no wire to save");
  }

  Status check_size(const HloReportRow& row) const {
    if (row.elements == 0) return unsupported("it has no elements");
    if (row.bytes >= options_.min_bytes) return ok_status();
    return unsupported(
        fmt::format("its {} bytes are below min_bytes ({})", row.bytes, options_.min_bytes));
  }

  std::string explain(const Candidate& candidate, const HloReportRow& row,
                      const Rewrite& rewrite) const {
    std::string out = fmt::format("A plain sum over {} devices.", row.groups);
    const size_t operand_count = graph_.operands(candidate.node).size();
    const auto& attributes = candidate.fields.frontend_attributes;
    const bool chosen = std::any_of(attributes.begin(), attributes.end(), [](const auto& entry) {
      return entry.first == kHloChoiceAttribute;
    });
    if (chosen && operand_count > 1) {
      out += fmt::format(" XLA combined {} operations into it; the choice covers all of them.",
                         operand_count);
    }
    if (!row.promoted) return out;
    out += " XLA promoted it from bf16";
    if (rewrite.codec != kHloExactCodec) return out + ".";
    if (rewrite.wire_bf16) return out + "; it travels as bf16, which loses nothing here.";
    return out + fmt::format("; it travels as f32, because {}.",
                             rewrite.operands_are_bf16
                                 ? "its result is also read in f32"
                                 : "an operand carries more than bf16 precision");
  }

  Status replace(const Candidate& candidate, const HloReportRow& row, const Rewrite& rewrite) {
    const HloInstruction& instruction = graph_.at(candidate.node);
    const std::string attributes = fmt::format(
        "{{groups = array<i64: {}>, group_size = {} : i64, fingerprint = {} : i64, "
        "operation = {} : i64, codec = {}, plan = {}, timeout_ms = {} : i64, wire_bf16 = {}, "
        "channels = array<i64: {}>}}",
        fmt::join(rewrite.groups.devices, ", "), rewrite.groups.group_size, fingerprint_,
        row.operation, quoted(rewrite.codec), quoted(options_.plan), options_.timeout_ms,
        rewrite.wire_bf16, fmt::join(row.channels, ", "));
    const std::string_view target =
        instruction.opcode == "all-reduce" ? kHloAllReduceTarget : kHloReduceScatterTarget;
    auto bytes = make_ffi_custom_call(instruction.bytes, target, attributes);
    if (!bytes.ok()) return bytes.status();
    const size_t computation = graph_.computation_of(candidate.node);
    replacements_.push_back(
        {computation, candidate.node - graph_.first_of(computation), std::move(bytes).value()});
    return ok_status();
  }

  const HloModule& module_;
  const HloPassOptions& options_;
  const std::string default_codec_;
  const HloGraph graph_;
  const std::unordered_set<int64_t> local_;
  std::unordered_map<int64_t, size_t> process_of_;
  HloDeviceAssignment assignment_;
  std::vector<Candidate> candidates_;
  std::vector<HloReplacement> replacements_;
  int64_t fingerprint_ = 0;
  HloPassOutput output_;
};

// The canonical default codec.
Result<std::string> check_options(const HloPassOptions& options) {
  TERSUM_CHECK(options.canonical_codec != nullptr);
  if (options.timeout_ms < 0) {
    return invalid_argument(
        fmt::format("timeout_ms is {}; it must be 0 or more", options.timeout_ms));
  }
  if (options.min_bytes < 0) {
    return invalid_argument(
        fmt::format("min_bytes is {}; it must be 0 or more", options.min_bytes));
  }
  if (!parse_plan_kind(options.plan)) {
    return invalid_argument(
        fmt::format("plan is '{}'; it must be auto, two_step, ring or one_shot", options.plan));
  }
  if (options.codec == kHloChoiceOff) return options.codec;
  return options.canonical_codec(options.codec);
}

}  // namespace

std::string_view hlo_outcome_name(HloOutcome outcome) {
  switch (outcome) {
    case HloOutcome::kRewritten:
      return "rewritten";
    case HloOutcome::kLeftAlone:
      return "left alone";
    case HloOutcome::kError:
      return "error";
  }
  return "";
}

Result<HloPassOutput> run_hlo_pass(std::string_view serialized_module,
                                   const HloPassOptions& options) {
  auto codec = check_options(options);
  if (!codec.ok()) return codec.status();
  const auto module = parse_hlo_module(serialized_module);
  if (!module.ok()) return module.status();
  return Pass(module.value(), options, std::move(codec).value()).run();
}

}  // namespace tersum
