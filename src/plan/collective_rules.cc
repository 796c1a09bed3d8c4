#include "plan/collective_rules.h"

namespace tersum {

PartRule part_rule(Collective collective, int size, int root, uint32_t part) {
  const auto rank = static_cast<int>(part);
  switch (collective) {
    case Collective::kReduceScatter:
      return {rank, rank};
    case Collective::kAllGather:
      return {rank, kEveryRank};
    case Collective::kBroadcast:
      return {root, kEveryRank};
    case Collective::kAllToAll:
      return {rank / size, rank % size};
    case Collective::kGather:
      return {rank, root};
    case Collective::kScatter:
      return {root, rank};
    case Collective::kAllReduce:
    case Collective::kBarrier:
      break;
  }
  return {};
}

size_t part_count(Collective collective, int size) {
  const auto ranks = static_cast<size_t>(size);
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
      return ranks;
    case Collective::kAllToAll:
      return ranks * ranks;
    default:
      return 1;
  }
}

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kGather ||
         collective == Collective::kScatter;
}

size_t input_begin(Collective collective, int size, int rank, size_t part_elements) {
  const auto own = static_cast<size_t>(rank);
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return own * part_elements;
    case Collective::kAllToAll:
      return own * static_cast<size_t>(size) * part_elements;
    default:
      return 0;
  }
}

size_t part_begin_in_output(Collective collective, int size, uint32_t part, size_t part_elements) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return 0;
    case Collective::kAllToAll:
      return part / static_cast<size_t>(size) * part_elements;
    default:
      return part * part_elements;
  }
}

}  // namespace tersum
