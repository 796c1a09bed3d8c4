#include "codec/force_isa.h"

#include "codec/kernels/dispatch.h"

namespace tersum {

std::string_view active_isa() { return target_name(active_target()); }

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const int64_t target : available_targets()) names.emplace_back(target_name(target));
  return names;
}

Status force_isa(std::string_view name) {
  if (name.empty()) {
    unforce_target();
    return ok_status();
  }
  std::string known;
  for (const int64_t target : available_targets()) {
    if (target_name(target) == name) {
      force_target(target);
      return ok_status();
    }
    known += known.empty() ? "" : ", ";
    known += target_name(target);
  }
  return invalid_argument("no instruction set \"" + std::string(name) +
                          "\" here; this CPU and build can run: " + known);
}

}  // namespace tersum
