#include "xla/ffi_auto_codec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <string>
#include <unordered_map>

#include "runtime/tuning/auto_codecs.h"

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

Result<std::optional<AllowedCodecs>> allowed_codecs(std::string_view codec) {
  if (!is_auto(codec)) return std::optional<AllowedCodecs>();
  codec.remove_prefix(std::min(codec.size(), kAuto.size() + 1));
  AllowedCodecs allowed;
  const char* const begin = codec.data();
  const auto [end, failure] = std::from_chars(begin, begin + codec.size(), allowed.error);
  const std::string_view behind = codec.substr(static_cast<size_t>(end - begin));
  const bool is_number = failure == std::errc() && (behind.empty() || behind.front() == ':');
  if (!is_number || !(allowed.error > 0) || !std::isfinite(allowed.error)) {
    return invalid_argument(
        "the codec auto needs the relative error that it may cause, a number above 0; write "
        "auto:1e-2 or auto:1e-2:int8/128|int6/128+flatten, or pass max_rel_error=1e-2");
  }
  const std::string list = std::string(kAuto) + std::string(behind);
  const Result<const AutoCodecs*> codecs = find_auto_codecs(list);
  if (!codecs.ok()) return codecs.status();
  allowed.codec = codecs.value()->spec;
  return std::optional<AllowedCodecs>(allowed);
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
