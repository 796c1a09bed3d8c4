// copy_bytes: every byte and nothing beside, wherever in their pages the ends lie.
#include "base/copy_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tersum {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kRoomBytes = 16 * kPageBytes;
constexpr std::byte kUntouched{0xA5};

// Memory that begins with a page.
class Pages {
 public:
  Pages() : memory_(kRoomBytes + kPageBytes, kUntouched) {}
  std::byte* begin() {
    const auto skipped = reinterpret_cast<uintptr_t>(memory_.data()) % kPageBytes;
    return memory_.data() + (kPageBytes - skipped) % kPageBytes;
  }
  std::byte* end() { return begin() + kRoomBytes; }

 private:
  std::vector<std::byte> memory_;
};

TEST(CopyBytes, CopiesThemAllAndNothingBeside) {
  Pages source;
  for (size_t i = 0; i < kRoomBytes; ++i) {
    source.begin()[i] = static_cast<std::byte>(i % 251 + i / 4096);
  }
  for (const size_t from : {size_t{0}, size_t{16}, size_t{4080}}) {
    // How far beyond, modulo a page: in parts up to 31, in one go else.
    for (const size_t beyond : {0, 1, 16, 31, 32, 63, 64, 2048, 4080, 4095}) {
      for (const size_t bytes : {0, 1, 2047, 2048, 2049, 4096, 6143, 6144, 6145, 40'000}) {
        Pages target;
        std::byte* const to = target.begin() + kPageBytes + (from + beyond) % kPageBytes;
        const std::byte* const read = source.begin() + from;
        SCOPED_TRACE(testing::Message() << from << " + " << beyond << ", " << bytes);
        copy_bytes(to, read, bytes);
        EXPECT_TRUE(std::equal(read, read + bytes, to));
        const auto untouched = [](std::byte byte) { return byte == kUntouched; };
        EXPECT_TRUE(std::all_of(target.begin(), to, untouched));
        EXPECT_TRUE(std::all_of(to + bytes, target.end(), untouched));
      }
    }
  }
}

TEST(CopyBytes, NothingMayLieNowhere) { copy_bytes(nullptr, nullptr, 0); }

}  // namespace
}  // namespace tersum
