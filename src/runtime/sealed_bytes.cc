#include "runtime/sealed_bytes.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "runtime/group_id.h"

namespace tersum {
namespace {

constexpr size_t kMagicBytes = 8;
constexpr size_t kHeadBytes = 16;
constexpr size_t kDigestBytes = 8;

uint64_t digest_of(std::span<const std::byte> bytes) {
  return text_digest({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

SealedWriter::SealedWriter(std::string_view magic, uint64_t entries) {
  TERSUM_CHECK(magic.size() == kMagicBytes);
  std::memcpy(add_room(kMagicBytes).data(), magic.data(), kMagicBytes);
  add(entries);
}

void SealedWriter::add(uint64_t number) { store_le(add_room(sizeof(number)).data(), number); }

std::span<std::byte> SealedWriter::add_room(size_t bytes) {
  bytes_.resize(bytes_.size() + bytes);
  return std::span(bytes_).last(bytes);
}

std::vector<std::byte> SealedWriter::seal() && {
  add(digest_of(bytes_));
  return std::move(bytes_);
}

Result<SealedReader> SealedReader::open(std::span<const std::byte> sealed, std::string_view magic) {
  if (sealed.size() < kHeadBytes + kDigestBytes ||
      std::memcmp(sealed.data(), magic.data(), kMagicBytes) != 0) {
    return invalid_argument("they do not begin with \"" + std::string(magic) + "\"");
  }
  const std::span<const std::byte> content = sealed.first(sealed.size() - kDigestBytes);
  if (load_le<uint64_t>(sealed.last(kDigestBytes).data()) != digest_of(content)) {
    return invalid_argument("their digest is not that of their content");
  }
  return SealedReader(load_le<uint64_t>(sealed.data() + kMagicBytes), content.subspan(kHeadBytes));
}

uint64_t SealedReader::take_number() { return load_le<uint64_t>(take(sizeof(uint64_t)).data()); }

std::span<const std::byte> SealedReader::take(size_t bytes) {
  TERSUM_CHECK(bytes <= rest_.size());
  const std::span<const std::byte> taken = rest_.first(bytes);
  rest_ = rest_.subspan(bytes);
  return taken;
}

}  // namespace tersum
