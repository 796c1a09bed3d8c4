#include "runtime/tuning/error_samples.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/mix_bits.h"
#include "codec/codec.h"
#include "codec/kernels/added_terms.h"
#include "codec/kernels/element_kernels.h"
#include "codec/value_kind.h"
#include "runtime/group_id.h"

namespace tersum {
namespace {

const Codec& codec_of(std::string_view spec) {
  const Result<const Codec*> codec = find_codec(spec, DataType::kFloat32, ReduceOp::kSum);
  TERSUM_CHECK(codec.ok());
  return *codec.value();
}

// The squared distance between values and what one coding makes of them.
double squared_error(const Codec& codec, const std::vector<float>& values) {
  std::vector<std::byte> wire(codec.wire_bytes(values.size()));
  std::vector<float> decoded(values.size());
  codec.encode(values.data(), values.size(), wire.data());
  codec.decode(wire.data(), values.size(), decoded.data());
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
    sum += error * error;
  }
  return sum;
}

// A number that is exact in float64, as are sums of it over 65,535 ranks.
double digest_of(const CallArguments& arguments, const CallOptions& options) {
  uint64_t digest = text_digest(options.site);
  const auto fold = [&](auto field) {
    digest = mix_bits(digest + 0x9e3779b97f4a7c15U + static_cast<uint64_t>(field));
  };
  fold(arguments.collective);
  fold(arguments.type);
  fold(arguments.op);
  fold(arguments.count);
  fold(arguments.tensors);
  return static_cast<double>(digest >> 28);
}

}  // namespace

std::vector<size_t> ErrorSamples::run_starts(size_t count, uint64_t call) {
  const size_t runs = (count + kRunValues - 1) / kRunValues;
  const size_t taken = std::min(runs, kRuns);
  const double phase = std::ldexp(static_cast<double>(mix_bits(call) >> 11), -53);
  std::vector<size_t> starts(taken);
  for (size_t i = 0; i < taken; ++i) {
    const double place =
        (static_cast<double>(i) + phase) * static_cast<double>(runs) / static_cast<double>(taken);
    starts[i] = std::min(static_cast<size_t>(place), runs - 1) * kRunValues;
  }
  return starts;
}

const std::vector<std::string_view>& ErrorSamples::ladder() {
  static const auto* const codecs = new std::vector<std::string_view>{
      "bf16",  // 16 bits a value, then 8.5, 8.125, …
      "int8/32",
      "int8/128",
      "int7/128+hadamard",
      "int7/128",
      "int6/128+hadamard",
      "int6/128",
      "int5/128+hadamard",
      "int4/32",
      "nf4/64",
      "int4/128",
      "int3/64+hadamard",
  };
  return *codecs;
}

const ErrorSamples::Site* ErrorSamples::find(const CallArguments& arguments,
                                             const CallOptions& options) const {
  const auto found = std::find_if(sites_.begin(), sites_.end(), [&](const Site& site) {
    return site.collective == arguments.collective && site.type == arguments.type &&
           site.op == arguments.op && site.count == arguments.count &&
           site.tensors == arguments.tensors && site.name == options.site;
  });
  return found == sites_.end() ? nullptr : &*found;
}

ErrorSamples::Site& ErrorSamples::take(const CallArguments& arguments, const CallOptions& options) {
  const Site* const known = find(arguments, options);
  if (known != nullptr) {
    const auto place = sites_.begin() + (known - sites_.data());
    std::rotate(place, place + 1, sites_.end());
    return sites_.back();
  }
  if (sites_.size() >= kSitesKept) sites_.erase(sites_.begin());
  sites_.push_back({arguments.collective,
                    arguments.type,
                    arguments.op,
                    arguments.count,
                    arguments.tensors,
                    std::string(options.site),
                    0,
                    0,
                    {}});
  return sites_.back();
}

bool ErrorSamples::is_due(const CallArguments& arguments, const CallOptions& options,
                          uint64_t call) const {
  const Site* const site = find(arguments, options);
  if (site == nullptr ? sites_.size() < kSitesKept : site->taken < 2) return true;
  return mix_bits(call) % (arguments.count < kLargeValues ? kEverySmall : kEvery) == 0;
}

std::vector<double> ErrorSamples::measure(const CallArguments& arguments,
                                          const CallOptions& options, size_t count, uint64_t call) {
  const ValueKind kind = value_kind(arguments.type);
  const ElementKernels& kernels = element_kernels();
  const AddedTerms added{options.residual, options.bias,
                         options.bias_count > 0 ? options.bias_count : 1};
  std::vector<float> sample;
  sample.reserve(kRuns * kRunValues);
  alignas(64) float run[kRunValues + kTilePad];
  for (const size_t first : run_starts(count, call)) {
    const size_t here = std::min(kRunValues, count - first);
    load_with_terms(kernels, kind, arguments.input, added, 0, first, here, run);
    sample.insert(sample.end(), run, run + here);
  }
  std::vector<double> message(sample.begin(), sample.end());
  message.reserve(sample.size() + ladder().size() + 1);
  for (const std::string_view spec : ladder()) {
    message.push_back(squared_error(codec_of(spec), sample));
  }
  message.push_back(digest_of(arguments, options));
  return message;
}

void ErrorSamples::learn(const CallArguments& arguments, const CallOptions& options, size_t count,
                         const std::vector<double>& summed, const PlanErrorTerms& terms,
                         int ranks) {
  const size_t codecs = ladder().size();
  TERSUM_CHECK(summed.size() > codecs + 1);
  if (summed.back() != ranks * digest_of(arguments, options)) return;
  Site& site = take(arguments, options);
  ++site.taken;
  const std::vector<float> sums(summed.begin(), summed.end() - static_cast<ptrdiff_t>(codecs + 1));
  double size = 0;
  for (const float value : sums) size += static_cast<double>(value) * static_cast<double>(value);
  if (!std::isfinite(size) || (size == 0 && sums.size() < count)) return;
  // Of `ranks` contributions `terms.contributions` are coded; errors of different codings add as
  // squares.
  const double coded = terms.contributions / static_cast<double>(ranks);
  const double results = terms.partials + terms.finals;
  std::vector<double> errors(codecs);
  for (size_t i = 0; i < codecs; ++i) {
    const double moved =
        coded * summed[sums.size() + i] + results * squared_error(codec_of(ladder()[i]), sums);
    const double error = moved == 0 ? 0 : std::sqrt(moved / size);
    errors[i] = std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
  }
  site.errors[site.samples++ % kRecent] = std::move(errors);
}

std::optional<SampledCodec> ErrorSamples::cheapest(const CallArguments& arguments,
                                                   const CallOptions& options,
                                                   double rel_error) const {
  const Site* const site = find(arguments, options);
  if (site == nullptr || site->samples == 0) return std::nullopt;
  for (size_t i = ladder().size(); i-- > 0;) {
    double largest = 0;
    for (const std::vector<double>& errors : site->errors) {
      if (!errors.empty()) largest = std::max(largest, errors[i]);
    }
    if (largest <= rel_error) return SampledCodec{ladder()[i], largest};
  }
  return SampledCodec{"exact", 0};
}

}  // namespace tersum
