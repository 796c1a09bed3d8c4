#include "runtime/tuning/auto_codecs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "codec/kernels/outlier_selection.h"
#include "runtime/tuning/error_samples.h"
#include "tersum/codec_info.h"

namespace tersum {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr char kBetween = '|';

// One or two for each step of bits: those that lose least there on plain values, on uneven ones, on
// channels of different sizes and on lone outliers.
constexpr std::string_view kLadder =
    "auto:bf16|int8/32|int8/128|int8/128+flatten|int8/128+sparse:0.5%|int7/128|int7/128+hadamard|"
    "int6/128|int6/128+hadamard|int6/128+flatten|int6/128+sparse:0.5%|int5/128+hadamard|"
    "int5/128+flatten|int4/32|int4/32+flatten|int4/32+sparse:1%|nf4/64|int4/128|int4/128+sparse:"
    "0.5%|int3/64+hadamard|five/32|int2/32|int1/64";

Status refused(std::string_view list, std::string_view spec, std::string_view why) {
  return invalid_argument("codec \"" + std::string(list) + "\": \"" + std::string(spec) +
                          "\" cannot be chosen: " + std::string(why));
}

// Why samples do not show what the codec costs, or calls could not take it; empty: they do.
std::string_view refusal_of(const Codec& codec) {
  if (codec.lossless())
    return "it loses nothing, and exact is taken anyway where nothing else holds";
  if (codec.feeds_back()) {
    return "what it loses is given back by later calls, which no sample shows; name it in the call";
  }
  if (codec.held() != nullptr || codec.lesson() != nullptr) {
    return "what it will have learned at the site a sample does not show; name it in the call";
  }
  if (codec.shared_sums() != nullptr || codec.quantizes_own()) {
    return "its ranks add codes, which lose otherwise than a sample shows; name it in the call";
  }
  const auto& modifiers = codec.spec().modifiers;
  const bool has_rows = std::any_of(modifiers.begin(), modifiers.end(), [](const auto& modifier) {
    return modifier.starts_with("rows");
  });
  if (has_rows && ErrorSamples::kRunValues % codec.block() != 0) {
    return "a sample takes runs of 512 values, which have to be whole rows; name it in the call";
  }
  if (!codec.takes_hops()) {
    return "a ring, which the call may take, refuses it; write +hops behind it, or name it in the "
           "call with plan two_step";
  }
  return {};
}

bool has_sections(const CodecSpec& spec) {
  return std::any_of(spec.modifiers.begin(), spec.modifiers.end(), [](std::string_view modifier) {
    return modifier.starts_with("sparse") || modifier.starts_with("mixed") ||
           modifier.starts_with("adaptive");
  });
}

Result<AutoCodec> read_candidate(std::string_view list, std::string_view text) {
  if (text.empty()) {
    return invalid_argument("codec \"" + std::string(list) +
                            "\" has an empty place; write auto:int8/128|int6/128+flatten, say");
  }
  const Result<const Codec*> codec = find_codec(text, DataType::kFloat32, ReduceOp::kSum);
  if (!codec.ok()) return codec.status();
  const std::string_view why = refusal_of(*codec.value());
  if (!why.empty()) return refused(list, text, why);
  const CodecSpec& spec = codec.value()->spec();
  return AutoCodec{spec.to_string(), codec.value(), has_sections(spec)};
}

bool is_before(const AutoCodec& a, const AutoCodec& b) {
  const size_t a_cost = wire_cost(a, 1);
  const size_t b_cost = wire_cost(b, 1);
  if (a_cost != b_cost) return a_cost > b_cost;
  const size_t a_steps = a.codec->spec().modifiers.size();
  const size_t b_steps = b.codec->spec().modifiers.size();
  if (a_steps != b_steps) return a_steps > b_steps;
  return a.spec < b.spec;  // +flatten before +hadamard
}

Result<std::unique_ptr<AutoCodecs>> read_list(std::string_view text) {
  auto list = std::make_unique<AutoCodecs>();
  std::string_view rest = text.substr(kAuto.size() + 1);
  for (bool is_last = false; !is_last;) {
    const size_t end = rest.find(kBetween);
    is_last = end == std::string_view::npos;
    Result<AutoCodec> found = read_candidate(text, rest.substr(0, end));
    if (!found.ok()) return found.status();
    const bool is_twice = std::any_of(list->codecs.begin(), list->codecs.end(),
                                      [&](const auto& one) { return one.spec == found->spec; });
    if (is_twice) return refused(text, found->spec, "it stands twice");
    list->flattens = list->flattens || found->codec->flattens();
    list->codecs.push_back(std::move(found).value());
    if (!is_last) rest.remove_prefix(end + 1);
  }
  if (list->codecs.size() > AutoCodecs::kMost) {
    return invalid_argument("codec \"auto:…\" names " + std::to_string(list->codecs.size()) +
                            " codecs; name " + std::to_string(AutoCodecs::kMost) + " at most");
  }
  std::sort(list->codecs.begin(), list->codecs.end(), is_before);
  list->is_named = true;
  list->spec = std::string(kAuto);
  for (const AutoCodec& codec : list->codecs) {
    list->spec += (&codec == list->codecs.data() ? ':' : kBetween) + codec.spec;
  }
  return list;
}

const AutoCodecs* own_ladder() {
  static const AutoCodecs* const ladder = [] {
    Result<std::unique_ptr<AutoCodecs>> list = read_list(kLadder);
    TERSUM_CHECK(list.ok());
    list.value()->spec = kAuto;
    list.value()->is_named = false;
    return std::move(list).value().release();
  }();
  return ladder;
}

struct NamedLists {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<AutoCodecs>, std::less<>> by_text;
};

}  // namespace

bool is_auto(std::string_view codec) {
  return codec.starts_with(kAuto) && (codec.size() == kAuto.size() || codec[kAuto.size()] == ':');
}

Result<const AutoCodecs*> find_auto_codecs(std::string_view codec) {
  TERSUM_CHECK(is_auto(codec));
  if (codec == kAuto) return own_ladder();
  static auto* const lists = new NamedLists;
  const std::lock_guard lock(lists->mutex);
  const auto known = lists->by_text.find(codec);
  if (known != lists->by_text.end()) return known->second.get();
  Result<std::unique_ptr<AutoCodecs>> list = read_list(codec);
  if (!list.ok()) return list.status();
  return lists->by_text.emplace(codec, std::move(list).value()).first->second.get();
}

Result<std::vector<std::string>> auto_codecs(std::string_view codec) {
  if (!is_auto(codec)) {
    return invalid_argument("codec \"" + std::string(codec) +
                            "\" leaves nothing open; pass auto, or auto:int8/128|int6/128+flatten");
  }
  const Result<const AutoCodecs*> found = find_auto_codecs(codec);
  if (!found.ok()) return found.status();
  std::vector<std::string> specs;
  for (const AutoCodec& one : found.value()->codecs) specs.push_back(one.spec);
  return specs;
}

size_t wire_cost(const AutoCodec& codec, int ranks) {
  // Whole blocks and sections of every codec.
  constexpr size_t kValues = 16 * kSectionValues;
  return codec.codec->wire_bytes(kValues) +
         codec.codec->gathered(static_cast<uint32_t>(ranks)).wire_bytes(kValues);
}

}  // namespace tersum
