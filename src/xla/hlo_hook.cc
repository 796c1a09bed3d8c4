#include "xla/hlo_hook.h"

#include <utility>

namespace tersum {

Status HloHook::configure(const HloPassOptions& options) {
  // The empty module is a valid one: this checks the options and nothing else.
  const auto checked = run_hlo_pass({}, options);
  if (!checked.ok()) return checked.status();
  const std::lock_guard lock(mutex_);
  options_ = options;
  return ok_status();
}

void HloHook::disable() {
  const std::lock_guard lock(mutex_);
  options_.reset();
}

std::optional<std::string> HloHook::transform(std::string_view serialized_module) {
  std::optional<HloPassOptions> options;
  {
    const std::lock_guard lock(mutex_);
    options = options_;
  }
  if (!options) return std::nullopt;
  auto output = run_hlo_pass(serialized_module, *options);
  if (!output.ok()) {
    HloReportRow row;
    row.outcome = HloOutcome::kError;
    row.reason = "The module was left alone: " + std::string(output.status().message()) + ".";
    append({std::move(row)});
    return std::nullopt;
  }
  append(std::move(output->rows));
  if (!output->changed) return std::nullopt;
  return std::move(output->module);
}

std::vector<HloReportRow> HloHook::report() const {
  const std::lock_guard lock(mutex_);
  return {rows_.begin(), rows_.end()};
}

void HloHook::clear_report() {
  const std::lock_guard lock(mutex_);
  rows_.clear();
}

void HloHook::append(std::vector<HloReportRow> rows) {
  const std::lock_guard lock(mutex_);
  for (HloReportRow& row : rows) rows_.push_back(std::move(row));
  while (rows_.size() > rows_max_) rows_.pop_front();
}

}  // namespace tersum
