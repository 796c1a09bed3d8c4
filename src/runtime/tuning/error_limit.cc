#include "runtime/tuning/error_limit.h"

#include <cmath>
#include <cstdio>

#include "codec/codec.h"
#include "runtime/tuning/auto_codecs.h"
#include "runtime/tuning/open_plans.h"

namespace tersum {

std::string error_text(double error) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g", error);
  return text;
}

Status check_limit(const CallOptions& options) {
  if (options.max_rel_error >= 0 && std::isfinite(options.max_rel_error)) return {};
  return invalid_argument("max_rel_error is " + error_text(options.max_rel_error) +
                          "; pass a part of the largest magnitude, such as 0.01, or 0");
}

Result<std::string> excess_error(const PathContext& context, const CallArguments& arguments,
                                 const CallOptions& options) {
  if (options.max_rel_error == 0 || is_auto(options.codec)) return std::string();
  const Result<const Codec*> codec = find_codec(options.codec, arguments.type, arguments.op);
  if (!codec.ok()) return codec.status();
  if (codec.value()->lossless()) return std::string();
  PathContext unruled = context;
  unruled.rules = nullptr;  // ruled_plan() asks this, and error_terms() would ask ruled_plan()
  const Result<PlanErrorTerms> terms = error_terms(unruled, arguments, options);
  if (!terms.ok()) return terms.status();
  const double bound = relative_error_bound(options.codec, terms.value(), context.ground.size);
  if (bound <= options.max_rel_error) return std::string();
  return "codec " + std::string(options.codec) + " may be wrong by " + error_text(bound) +
         " here, above max_rel_error " + error_text(options.max_rel_error);
}

Status check_error(const PathContext& context, const CallArguments& arguments,
                   const CallOptions& options) {
  const Result<std::string> excess = excess_error(context, arguments, options);
  if (!excess.ok()) return excess.status();
  if (excess.value().empty()) return {};
  return invalid_argument(excess.value() + "; name a finer codec, or auto");
}

}  // namespace tersum
