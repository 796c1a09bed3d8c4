#include "plan/lined_json.h"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace tersum {
namespace {

// Walks over a text and knows the line of the character that was read last. The reader looks one
// character ahead after a number, so a line feed counts only once something beyond it is read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (feed_) ++*line_;
    feed_ = *at_ == '\n';
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ != b.at_;
  }

 private:
  const char* at_;
  int* line_;
  bool feed_ = false;
};

// Receives the events of nlohmann's parser; every handler returns false to stop.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(size_t text_bytes, const int* line) : text_bytes_(text_bytes), line_(line) {}

  bool null() override { return put(JsonKind::kNull, 0); }
  bool boolean(bool value) override { return put(JsonKind::kBool, value ? 1 : 0); }
  bool number_integer(number_integer_t value) override {
    return put(JsonKind::kNumber, static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return put(JsonKind::kNumber, static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return put(JsonKind::kNumber, value);
  }
  bool string(string_t& value) override {
    if (!put(JsonKind::kString, 0)) return false;
    last_->text = std::move(value);
    return true;
  }
  bool binary(binary_t& /*value*/) override { return stop("binary data is not JSON"); }
  bool start_object(std::size_t /*size*/) override { return open(JsonKind::kObject); }
  bool start_array(std::size_t /*size*/) override { return open(JsonKind::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (stack_.back()->find(name) != nullptr) return stop("\"" + name + "\" occurs twice");
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& /*error*/) override {
    if (position > text_bytes_) return stop("the text ends before it is complete");
    return stop("this is not JSON; it goes wrong at " + printable(token));
  }

  Result<LinedJson> take() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  static std::string printable(std::string_view token) {
    std::string shown;
    for (const char c : token.substr(0, 40)) shown += c >= ' ' && c <= '~' ? c : '?';
    return "`" + shown + "`";
  }

  bool stop(const std::string& why) {
    status_ = json_error(*line_, why);
    return false;
  }

  bool put(JsonKind kind, double number) {
    LinedJson value{kind, *line_, number, {}, std::exchange(key_, {}), {}};
    if (stack_.empty()) {
      root_ = std::move(value);
      last_ = &root_;
    } else {
      last_ = &stack_.back()->values.emplace_back(std::move(value));
    }
    return true;
  }

  bool open(JsonKind kind) {
    if (stack_.size() == kLinedJsonDepthMax) return stop("this is nested too deeply");
    put(kind, 0);
    stack_.push_back(last_);  // stays in place: its parent grows only after it was closed
    return true;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  const size_t text_bytes_;
  const int* line_;
  Status status_;
  LinedJson root_;
  LinedJson* last_ = nullptr;
  std::vector<LinedJson*> stack_;
  std::string key_;
};

}  // namespace

std::string_view json_kind_name(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return "true or false";
    case JsonKind::kNumber:
      return "a number";
    case JsonKind::kString:
      return "a string";
    case JsonKind::kArray:
      return "a list";
    case JsonKind::kObject:
      return "an object";
  }
  return "unknown";
}

const LinedJson* LinedJson::find(std::string_view member) const {
  for (const LinedJson& value : values) {
    if (value.key == member) return &value;
  }
  return nullptr;
}

Status json_error(int line, const std::string& text) {
  return invalid_argument("line " + std::to_string(line) + ": " + text);
}

Result<LinedJson> read_lined_json(std::string_view text) {
  int line = 1;
  Builder builder(text.size(), &line);
  const CountingIterator first(text.data(), &line);
  const CountingIterator last(text.data() + text.size(), &line);
  nlohmann::json::sax_parse(first, last, &builder);
  return builder.take();
}

}  // namespace tersum
