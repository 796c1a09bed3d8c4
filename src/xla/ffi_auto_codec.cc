#include "xla/ffi_auto_codec.h"

#include <charconv>
#include <cmath>
#include <mutex>
#include <unordered_map>

namespace tersum::xla_ffi {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr size_t kSitesMax = 64 * 1024;

struct NamedSites {
  std::mutex mutex;
  std::unordered_map<uint64_t, OperationId> operations;
};

NamedSites& named_sites() {
  static auto* const sites = new NamedSites;
  return *sites;
}

}  // namespace

Result<std::optional<double>> allowed_error(std::string_view codec) {
  if (codec != kAuto && !codec.starts_with("auto:")) return std::optional<double>();
  codec.remove_prefix(kAuto.size());
  double error = 0;
  if (!codec.empty()) {
    codec.remove_prefix(1);
    const auto [end, failure] = std::from_chars(codec.data(), codec.data() + codec.size(), error);
    if (failure != std::errc() || end != codec.data() + codec.size()) error = 0;
  }
  if (error > 0 && std::isfinite(error)) return std::optional<double>(error);
  return invalid_argument(
      "the codec auto needs the relative error that it may cause, a number above 0; write "
      "auto:1e-2 "
      "or pass max_rel_error=1e-2");
}

void name_site(uint64_t site, const OperationId& operation) {
  NamedSites& sites = named_sites();
  const std::lock_guard lock(sites.mutex);
  if (sites.operations.size() < kSitesMax) sites.operations.try_emplace(site, operation);
}

std::vector<OperationChoice> choices_of_operations(const std::vector<SiteChoice>& choices) {
  NamedSites& sites = named_sites();
  std::vector<OperationChoice> found;
  found.reserve(choices.size());
  const std::lock_guard lock(sites.mutex);
  for (const SiteChoice& choice : choices) {
    const auto named = sites.operations.find(choice.site);
    if (named != sites.operations.end()) found.push_back({named->second, choice});
  }
  return found;
}

}  // namespace tersum::xla_ffi
