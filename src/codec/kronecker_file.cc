#include "codec/kronecker_file.h"

#include <array>
#include <charconv>
#include <string>

#include "codec/kernels/block_product.h"
#include "codec/kronecker_transforms.h"
#include "codec/number_file.h"

namespace tersum {
namespace {

constexpr std::string_view kKind = "transform";
constexpr std::string_view kMagic = "tersum-kronecker";
// Two matrices of 128 x 128 and 65,536 channels in more digits than anybody needs.
constexpr size_t kFileBytesMax = size_t{4} << 20;
constexpr size_t kShownMax = 40;

std::string shown(std::string_view word) {
  return word.empty() ? "nothing" : "\"" + std::string(word.substr(0, kShownMax)) + "\"";
}

// A whole number of at most `most`.
bool take_size(std::string_view& text, size_t most, size_t& size) {
  const std::string_view word = take_word(text);
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, size);
  return error == std::errc() && stop == end && size <= most;
}

struct Part {
  std::string_view name;
  size_t columns;  // 0: no matrix
  size_t count;
  std::vector<float>* numbers;
};

// Where number `index` of a part is, for errors.
std::string place_in(const Part& part, size_t index) {
  std::string place(part.name);
  if (part.columns == 0) return place + ", channel " + std::to_string(index);
  return place + ", row " + std::to_string(index / part.columns) + ", column " +
         std::to_string(index % part.columns);
}

Status take_part(std::string_view name, const Part& part, std::string_view& text) {
  part.numbers->reserve(part.count);
  for (size_t i = 0; i < part.count; ++i) {
    const std::string_view word = take_word(text);
    float number = 0;
    if (!read_float(word, number)) {
      return bad_kronecker_file(
          name, "has " + shown(word) + " where a number stands: " + place_in(part, i));
    }
    part.numbers->push_back(number);
  }
  return {};
}

}  // namespace

Status bad_kronecker_file(std::string_view name, std::string_view why) {
  return bad_number_file(kKind, name, why);
}

Result<KroneckerNumbers> read_kronecker_file(std::string_view name) {
  const Result<std::string> text = read_number_file(kKind, name, kFileBytesMax);
  if (!text.ok()) return text.status();
  return parse_kronecker(name, text.value());
}

Result<KroneckerNumbers> parse_kronecker(std::string_view name, std::string_view text) {
  const std::string_view magic = take_word(text);
  const std::string_view version = take_word(text);
  if (magic != kMagic || version != "1") {
    return bad_kronecker_file(name, "begins with " + shown(magic) + " " + shown(version) +
                                        ", not with \"tersum-kronecker\" \"1\"");
  }
  size_t rows = 0;
  size_t columns = 0;
  size_t channels = 0;
  if (!take_size(text, kProductSideMax, rows) || !take_size(text, kProductSideMax, columns) ||
      !take_size(text, kDiagonalMax, channels)) {
    return bad_kronecker_file(name,
                              "does not say its sizes: the sides of P1 and P2, up to 128, and the "
                              "number of channels, up to 65536");
  }
  KroneckerNumbers numbers;
  const std::array parts = {Part{"P1", rows, rows * rows, &numbers.p1},
                            Part{"P2", columns, columns * columns, &numbers.p2},
                            Part{"the diagonal", 0, channels, &numbers.diagonal}};
  for (const Part& part : parts) TERSUM_RETURN_IF_ERROR(take_part(name, part, text));
  const std::string_view rest = take_word(text);
  if (!rest.empty()) {
    return bad_kronecker_file(name, "goes on with " + shown(rest) + " after the last number");
  }
  return numbers;
}

}  // namespace tersum
