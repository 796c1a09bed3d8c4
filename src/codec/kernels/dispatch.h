// Which of the compiled instruction sets ("targets") the kernels run on.
//
// Thread safety: any thread. Invariants: the choice is made at the first use and changes only
// through force_target; every target gives the same bits, so a change in the middle of a call is
// harmless. Kernels keep their own choice rather than Highway's, which they would share with
// whoever else uses Highway in the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace tersum {

// The obvious scalar code of the *_reference.cc files; one past what Highway can name.
inline constexpr int64_t kReferenceTarget = 0;

// Highway's bit of the target in use, or kReferenceTarget.
int64_t active_target();

// All that were compiled in and that this CPU runs, best first, kReferenceTarget last.
std::vector<int64_t> available_targets();

// Takes `target` from now on; it must be one of available_targets().
void force_target(int64_t target);
// Goes back to the best one.
void unforce_target();

// Where `target` stands in an array of HWY_CHOOSE_TARGET_LIST(...), HWY_CHOOSE_FALLBACK(...).
size_t table_index(int64_t target);

// The table of kernels of one instruction set; null where the reference serves.
template <class Kernels>
using TableFunction = const Kernels* (*)();

// The kernels for `target`, one of available_targets(), among `tables` in the order that
// table_index() knows.
template <class Kernels, size_t kTables>
const Kernels& table_of(int64_t target, const TableFunction<Kernels> (&tables)[kTables],
                        const Kernels* reference) {
  if (target == kReferenceTarget) return *reference;
  const TableFunction<Kernels> table = tables[table_index(target)];
  TERSUM_CHECK(table != nullptr && table() != nullptr);
  return *table();
}

// Highway's name in lower case, "scalar" for kReferenceTarget.
std::string_view target_name(int64_t target);

}  // namespace tersum
