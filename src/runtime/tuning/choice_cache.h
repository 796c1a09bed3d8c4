// ChoiceCache: what calls that leave something open have taken, so that a training loop pays for
// choosing each of its shapes once. Choosing may price every plan on described links, which takes
// longer than many a call.
//
// Thread safety: none of its own; what find() gives may be used from any thread and outlives the
// cache. Invariants: it holds kKept choices at most; find() does not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tersum/data_type.h"
#include "tersum/options.h"

namespace tersum {

// All that a choice goes by, beside what a whole group has in common.
struct ChoiceKey {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  PlanKind plan = PlanKind::kAuto;
  size_t count = 0;
  double max_rel_error = 0;
  std::string_view codec;
  // The codecs that recent samples allow, as bits above a 1; 0: nothing is known. Their errors do
  // not count: they change from sample to sample, and what is taken does not.
  uint64_t sampled = 0;

  bool operator==(const ChoiceKey&) const = default;
};

struct TakenPath {
  std::string codec;
  PlanKind plan = PlanKind::kAuto;
};

class ChoiceCache {
 public:
  // A model has some hundred lengths of tensors and buckets; 4,096 choices take 1 MB.
  static constexpr size_t kKept = 4096;

  // Null: not known.
  [[nodiscard]] std::shared_ptr<const TakenPath> find(const ChoiceKey& key) const;
  // What is known already stands. The key's texts are copied.
  std::shared_ptr<const TakenPath> add(const ChoiceKey& key, TakenPath path);
  void clear();
  [[nodiscard]] size_t size() const { return kept_.size(); }

 private:
  struct Entry {
    std::string codec;  // what key.codec views
    ChoiceKey key;
    TakenPath path;
  };
  struct Hash {
    size_t operator()(const ChoiceKey& key) const;
  };

  // Keys view their entries.
  std::unordered_map<ChoiceKey, std::shared_ptr<const Entry>, Hash> known_;
  std::vector<std::shared_ptr<const Entry>> kept_;
  uint64_t replaced_ = 0;
};

}  // namespace tersum
