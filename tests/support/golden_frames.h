// The frames of tests/golden/wire/frames.txt: those that must be read, with their fields, and those
// that must be refused. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace tersum {

struct GoldenFrame {
  std::string name;
  bool is_refused = false;
  std::map<std::string, std::string> fields;  // those that are not 0
  std::vector<std::byte> bytes;

  std::string text(const std::string& field) const {
    const auto found = fields.find(field);
    return found == fields.end() ? "" : found->second;
  }
  template <class Number>
  Number number(const std::string& field) const {
    const std::string digits = text(field);
    return static_cast<Number>(digits.empty() ? 0 : std::stoull(digits));
  }
};

inline std::vector<std::byte> golden_frame_bytes(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// What stands in the file as "message", "handshake" or "descriptor", refused ones too.
inline std::vector<GoldenFrame> golden_frames(const std::string& path, const std::string& what) {
  std::vector<GoldenFrame> frames;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    GoldenFrame frame;
    std::string word;
    words >> word;
    frame.is_refused = word == "refused";
    if (frame.is_refused) words >> word;
    if (word != what) continue;
    words >> frame.name;
    while (words >> word) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        frame.bytes = golden_frame_bytes(word);
      } else {
        frame.fields[word.substr(0, equals)] = word.substr(equals + 1);
      }
    }
    frames.push_back(std::move(frame));
  }
  return frames;
}

}  // namespace tersum
