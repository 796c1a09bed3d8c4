// What was saved and comes back: states of +flatten of one group and of a shelf of groups, what
// +feedback owes, and the tuner's cache. Any bytes are refused with a reason, or load to something
// that saves to the same again. Half of the inputs are sealed here, so that what stands behind the
// seal is reached.
//
//   kind (1): 0 flatten, 1 feedback, 2 shelf, 3 tuning table; + 4: as it is, without a seal; + 8: a
//             shelf of feedback
//   entries (1), then the rest
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz_input.h"
#include "runtime/feedback_sites.h"
#include "runtime/flatten_shelf.h"
#include "runtime/flatten_sites.h"
#include "runtime/sealed_bytes.h"
#include "runtime/tuning/tuning_table.h"

namespace tersum {
namespace {

using Bytes = std::vector<std::byte>;

void check_refusal(const Status& status) {
  TERSUM_CHECK(status.code() == StatusCode::kInvalidArgument);
  TERSUM_CHECK(!status.message().empty());
}

Bytes sealed(std::string_view magic, uint64_t entries, std::span<const std::byte> rest) {
  SealedWriter writer(magic, entries);
  std::ranges::copy(rest, writer.add_room(rest.size()).begin());
  return std::move(writer).seal();
}

// Loads `saved` into one of `Sites` and what that saves into another.
template <class Sites>
void fuzz_sites(const Bytes& saved) {
  Sites sites;
  const Status loaded = sites.load(saved);
  if (!loaded.ok()) {
    check_refusal(loaded);
    TERSUM_CHECK(sites.save().value() == Sites().save().value());
    return;
  }
  const Bytes once = sites.save().value();
  Sites again;
  TERSUM_CHECK(again.load(once).ok());
  TERSUM_CHECK(again.save().value() == once);
}

// `unpack` and `pack` of the shelves of +flatten or of +feedback.
void fuzz_shelf(const Bytes& packed, const auto& unpack, const auto& pack) {
  const auto shelf = unpack(packed);
  if (!shelf.ok()) return check_refusal(shelf.status());
  const Bytes once = pack(shelf.value());
  TERSUM_CHECK(unpack(once).value() == shelf.value());
}

void fuzz_table(std::string_view text) {
  constexpr std::string_view kKey = "k";
  constexpr size_t kMostBytes = PTRDIFF_MAX;  // of an array
  const TuningTable table = TuningTable::parse(text, kKey);
  const auto is_time = [](double seconds) { return seconds >= 0 && std::isfinite(seconds); };
  for (const TuningPoint& point : table.points()) {
    TERSUM_CHECK(point.seconds > 0 && std::isfinite(point.seconds));
    TERSUM_CHECK(table.seconds(point.way, point.bytes).has_value());
    for (const size_t size : {point.bytes / 2 + 1, point.bytes, point.bytes * 3, kMostBytes}) {
      const size_t bytes = std::min(size, kMostBytes);
      TERSUM_CHECK(is_time(table.seconds(point.way, bytes).value_or(0)));
      for (const TuningOption& option : table.rank_ways(bytes, bytes, tuning_codecs())) {
        TERSUM_CHECK(is_time(option.seconds) && is_time(option.least_s));
      }
    }
  }
  const std::string once = table.to_text(kKey);
  TERSUM_CHECK(TuningTable::parse(once, kKey).to_text(kKey) == once);
}

}  // namespace
}  // namespace tersum

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tersum;  // NOLINT(google-build-using-namespace)
  FuzzInput input(data, size);
  const uint8_t kind = input.byte();
  const uint64_t entries = input.byte();
  const auto saved = [&](std::string_view magic) {
    if ((kind & 4U) == 0) return sealed(magic, entries, input.rest());
    return Bytes(input.rest().begin(), input.rest().end());
  };
  switch (kind & 3U) {
    case 0:
      fuzz_sites<FlattenSites>(saved("tersumF1"));
      break;
    case 1:
      fuzz_sites<FeedbackSites>(saved("tersumE1"));
      break;
    case 2:
      if ((kind & 8U) == 0) {
        fuzz_shelf(saved("tersumW1"), unpack_shelf, pack_shelf);
      } else {
        fuzz_shelf(saved("tersumX1"), unpack_feedback, pack_feedback);
      }
      break;
    default:
      fuzz_table(input.text());
  }
  return 0;
}
