// Tables of levels: from numbers and from files, their names, and what is refused.
#include "codec/level_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "codec/codec.h"
#include "codec/digest_name.h"
#include "golden_tables.h"
#include "tersum/codec_info.h"
#include "tersum/codec_payload.h"

namespace tersum {
namespace {

using testing::HasSubstr;

class TableFile {
 public:
  explicit TableFile(const std::string& text) {
    static int files = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("tersum_table_" + std::to_string(getpid()) + "_" + std::to_string(files++));
    write(text);
  }
  ~TableFile() { std::filesystem::remove(path_); }
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  void write(const std::string& text) const { std::ofstream(path_) << text; }
  [[nodiscard]] std::string spec() const { return "table:" + path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string error_of(const std::string& spec) {
  const auto normal = normalize_codec(spec);
  EXPECT_FALSE(normal.ok()) << spec;
  EXPECT_EQ(normal.status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(find_codec(spec, DataType::kInt32, ReduceOp::kMax).ok());
  return std::string(normal.status().message());
}

TEST(LevelTables, OfAFileAreThoseOfTheSameNumbers) {
  const TableFile file("# two below, two above\n-1, -0.25\t0 # nothing\r\n 6.25e-1");
  const std::string spec = register_table(std::vector<float>{-1, -0.25F, -0.0F, 0.625F}).value();
  EXPECT_EQ(normalize_codec(file.spec()).value(), spec + "/64");
  EXPECT_EQ(normalize_codec(file.spec() + "/32+hadamard+sparse:1%").value(),
            spec + "/32+sparse:1%+hadamard");
  EXPECT_EQ(find_codec(file.spec(), DataType::kFloat32, ReduceOp::kSum).value(),
            find_codec(spec, DataType::kFloat32, ReduceOp::kSum).value());
}

TEST(LevelTables, AFileIsReadOnce) {
  const TableFile file("-1 1");
  const std::string before = normalize_codec(file.spec()).value();
  file.write("-1 0.5");
  EXPECT_EQ(normalize_codec(file.spec()).value(), before);
}

TEST(LevelTables, AFileThatWasMissingMayComeLater) {
  const TableFile file("0");
  EXPECT_THAT(error_of(file.spec()), HasSubstr("2, 4, 8 or 16 levels, not 1"));
  file.write("0 1");
  EXPECT_TRUE(normalize_codec(file.spec()).ok());
}

TEST(LevelTables, AFilesNameCannotStandForOtherLevelsThanItsDigest) {
  const std::vector<float> levels = {-0.375F, 0.8125F};
  const std::string digest = digest_name(std::as_bytes(std::span(levels)));
  std::ofstream(digest) << "-1 1";
  const std::string of_file = normalize_codec("table:" + digest).value();
  std::filesystem::remove(digest);
  EXPECT_NE(of_file, "table:" + digest + "/64");
  EXPECT_EQ(register_table(levels).value(), "table:" + digest);
  const LevelTable& found = level_table(find_level_table(digest).value());
  EXPECT_TRUE(std::ranges::equal(found.levels, levels));
}

TEST(LevelTables, WrongOnesAreRefusedWithThePlace) {
  for (const auto& [text, reason] :
       {std::pair{"", "not 0"},
        {"0 0.5 1", "2, 4, 8 or 16 levels, not 3"},
        {"0 .1 .2 .3 .4 .5 .6 .7 .8 .81 .82 .83 .84 .85 .86 .87 .88", "not 17"},
        {"0.5 0.5", "level 1 (0.500000) does not ascend"},
        {"0 1.5", "level 1 (1.500000) is not in [-1, 1]"},
        {"nan 1", "level 0"},
        {"-inf 1", "level 0"},
        {"0 one", "holds \"one\""},
        {"0 1e", "holds \"1e\""}}) {
    const TableFile file(text);
    EXPECT_THAT(error_of(file.spec()), testing::AllOf(HasSubstr(reason), HasSubstr("tersum_table")))
        << text;
  }
  EXPECT_THAT(error_of(TableFile(std::string(70'000, ' ')).spec()), HasSubstr("64 KiB"));
  for (const char* name : {"table:", "table:/", "table:/dev/zero", "table:0123456789abcdef",
                           "table:no such file/32"}) {
    EXPECT_THAT(error_of(name), HasSubstr("neither a file here nor the digest")) << name;
  }
  EXPECT_THAT(error_of(golden_tables()[0] + "/48"), HasSubstr("32, 64, 128"));
  EXPECT_THAT(error_of(golden_tables()[0] + "+floor"), HasSubstr("only the MX formats"));
  EXPECT_THAT(error_of("table"), HasSubstr("table:FILE"));
  EXPECT_THAT(error_of("kmeans:12/64"), HasSubstr("2, 4, 8 or 16 levels, not \"12\""));
  EXPECT_THAT(error_of("kmeans:16/48"), HasSubstr("32, 64, 128"));
  EXPECT_THAT(error_of("kmeans:16+hadamard"), HasSubstr("sparse and rows alone"));
}

TEST(LevelTables, ZerosStayZerosAndEveryValueGetsItsNearestLevel) {
  for (const std::string& spec : golden_tables()) {
    SCOPED_TRACE(spec);
    std::vector<float> values(64, 0.0F);
    std::vector<float> back(64, 1.0F);
    const auto payload = encode_payload(spec, DataType::kFloat32, values.data(), 64).value();
    ASSERT_TRUE(decode_payload(spec, DataType::kFloat32, payload, 64, back.data()).ok());
    for (const float x : back) EXPECT_TRUE(x == 0 && !std::signbit(x));
    const LevelTable& table = level_table(find_level_table(spec.substr(6)).value());
    // The first value makes the scale 2; the others are just off a level.
    values.assign(64, 2.0F);
    for (size_t i = 1; i < 64; ++i) values[i] = 1.999F * table.levels[i % table.levels.size()];
    const auto coded = encode_payload(spec, DataType::kFloat32, values.data(), 64).value();
    ASSERT_TRUE(decode_payload(spec, DataType::kFloat32, coded, 64, back.data()).ok());
    for (size_t i = 1; i < 64; ++i) EXPECT_EQ(back[i], 2 * table.levels[i % table.levels.size()]);
  }
}

TEST(LevelTables, ThreadsThatRegisterTheSameGetOneNumber) {
  std::vector<uint16_t> numbers(8);
  std::vector<std::thread> threads;
  threads.reserve(numbers.size());
  for (uint16_t& number : numbers) {
    threads.emplace_back([&number] {
      for (int i = 0; i < 100; ++i) {
        const std::vector<float> levels = {-1, static_cast<float>(i) / 100};
        number = register_level_table(levels).value();
        EXPECT_EQ(level_table(number).levels.back(), levels.back());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::vector<uint16_t>(8, numbers[0]), numbers);
}

}  // namespace
}  // namespace tersum
