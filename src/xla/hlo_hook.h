// HloHook: the pass as XLA's hook needs it: options that may change between compilations, and a
// report that grows with them.
//
// Thread safety: all methods, from any thread (XLA compiles in several). Invariants: transform
// never fails: what cannot be read is left alone and reported; memory is bounded, the report keeps
// the latest kRowsMax rows.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/status.h"
#include "xla/hlo_pass.h"

namespace tersum {

class HloHook {
 public:
  // Off until configured.
  explicit HloHook(size_t rows_max = 100'000) : rows_max_(rows_max) {}

  // Takes effect with the next module. An option that is wrong leaves all as it was.
  Status configure(const HloPassOptions& options);
  // Modules pass unchanged and unreported until the next configure.
  void disable();

  // The module to compile instead; nothing when this one is to stay as it is.
  std::optional<std::string> transform(std::string_view serialized_module);

  // Every collective seen since the start or the last clear, oldest first.
  [[nodiscard]] std::vector<HloReportRow> report() const;
  void clear_report();

 private:
  void append(std::vector<HloReportRow> rows);

  const size_t rows_max_;
  mutable std::mutex mutex_;
  std::optional<HloPassOptions> options_;
  std::deque<HloReportRow> rows_;
};

}  // namespace tersum
