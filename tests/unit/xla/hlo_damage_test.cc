// Damaged modules: whatever is cut off or flipped, the pass neither crashes nor writes something
// that is not a module. (The sanitizer builds run this, too.)

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hlo_test_module.h"
#include "xla/hlo_proto.h"

namespace tersum::hlo_test {
namespace {

std::vector<std::string> all_modules() {
  std::vector<std::string> out;
  for (const std::string& folder : {kJaxFolder, kHandmadeFolder}) {
    for (const std::string& name : golden_names(folder)) out.push_back(golden(folder, name));
  }
  return out;
}

// An error, or a result that can be read again and has the instructions that the input has.
bool survives(const std::string& damaged) {
  auto options = all_options();
  options.codec = "exact";  // with the proofs
  const auto result = run_hlo_pass(damaged, options);
  if (!result.ok()) return result.status().code() == StatusCode::kInvalidArgument;
  if (!result.value().changed) return result.value().module.empty();
  const auto before = parse_hlo_module(damaged);
  const auto after = parse_hlo_module(result.value().module);
  if (!before.ok() || !after.ok()) return false;
  const auto& old_computations = before.value().computations;
  const auto& new_computations = after.value().computations;
  if (old_computations.size() != new_computations.size()) return false;
  for (size_t c = 0; c < old_computations.size(); ++c) {
    const auto& old_instructions = old_computations[c].instructions;
    const auto& new_instructions = new_computations[c].instructions;
    if (old_instructions.size() != new_instructions.size()) return false;
    for (size_t i = 0; i < old_instructions.size(); ++i) {
      if (old_instructions[i].id != new_instructions[i].id) return false;
      if (old_instructions[i].operand_ids != new_instructions[i].operand_ids) return false;
      const bool rewritten = new_instructions[i].opcode != old_instructions[i].opcode;
      if (!rewritten && old_instructions[i].bytes != new_instructions[i].bytes) return false;
    }
  }
  return true;
}

TEST(HloDamage, EveryTruncation) {
  for (const std::string& module : all_modules()) {
    // All of the small modules, every 7th length of the large ones.
    const size_t step = module.size() < 1200 ? 1 : 7;
    for (size_t size = 0; size < module.size(); size += step) {
      ASSERT_TRUE(survives(module.substr(0, size))) << "cut to " << size;
    }
  }
}

TEST(HloDamage, EveryBitOfSmallModules) {
  for (const std::string name : {"groups_mesh_sub_axis", "groups_iota_transposed", "promoted"}) {
    const std::string module = golden(kHandmadeFolder, name);
    for (size_t bit = 0; bit < module.size() * 8; ++bit) {
      std::string damaged = module;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      ASSERT_TRUE(survives(damaged)) << name << ", bit " << bit;
    }
  }
}

// A field of another wire type than its declaration's is unknown; what follows it still counts.
TEST(HloDamage, AFieldOfAnotherWireTypeIsSkippedAlone) {
  // replica_count 1, computation_count 1, computation_devices as four bytes and as it should be.
  const std::string assignment("\x08\x01\x10\x01\x1d\x03\x0a\x01\x05\x1a\x03\x0a\x01\x04", 14);
  const auto parsed = parse_hlo_device_assignment(assignment);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().devices, std::vector<int64_t>{4});
}

// Found by fuzzing: all replicas of no partition were gone through, 2^62 of them here.
TEST(HloDamage, ManyReplicasOfNoPartitionAreNoDevices) {
  const std::string replicas("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x40", 10);
  for (const std::string& assignment : {replicas, replicas + std::string("\x10\x00", 2)}) {
    const auto parsed = parse_hlo_device_assignment(assignment);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed.value().replica_count, int64_t{1} << 62);
    EXPECT_TRUE(parsed.value().devices.empty());
  }
}

// rapidcheck prints the seed and shrinks the failing case.
RC_GTEST_PROP(HloDamage, RandomBytesAndSplices, ()) {
  static const std::vector<std::string> modules = all_modules();
  const auto index = [](size_t size) { return *rc::gen::inRange<size_t>(0, size); };
  std::string damaged = modules[index(modules.size())];
  const size_t changes = *rc::gen::inRange<size_t>(1, 12);
  for (size_t k = 0; k < changes && !damaged.empty(); ++k) {
    const size_t at = index(damaged.size());
    switch (index(3)) {
      case 0:
        damaged[at] = static_cast<char>(*rc::gen::arbitrary<unsigned char>());
        break;
      case 1:
        damaged.erase(at, index(8));
        break;
      default: {
        const std::string& donor = modules[index(modules.size())];
        const size_t from = index(donor.size());
        damaged.insert(at, donor.substr(from, index(64)));
      }
    }
  }
  RC_ASSERT(survives(damaged));
}

}  // namespace
}  // namespace tersum::hlo_test
