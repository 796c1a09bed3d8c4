#include "xla/hlo_groups.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

namespace tersum {
namespace {

using IdGroups = std::vector<std::vector<int64_t>>;

// More axes than any mesh has; keeps the work on a hostile encoding linear.
constexpr size_t kAxisCountMax = 64;

// The product, or nothing when a factor is not positive, the product exceeds `limit`, or there are
// too many factors.
std::optional<int64_t> bounded_product(const std::vector<int64_t>& factors, int64_t limit) {
  if (factors.size() > kAxisCountMax) return std::nullopt;
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor <= 0 || factor > limit / product) return std::nullopt;
    product *= factor;
  }
  return product;
}

bool is_permutation_of_axes(const std::vector<int64_t>& perm, size_t axis_count) {
  std::vector<bool> seen(axis_count, false);
  for (const int64_t axis : perm) {
    if (axis < 0 || static_cast<size_t>(axis) >= axis_count || seen[static_cast<size_t>(axis)]) {
      return false;
    }
    seen[static_cast<size_t>(axis)] = true;
  }
  return perm.size() == axis_count;
}

// `values`, an array of shape `dims` in row-major order, transposed so that axis i of the result is
// axis perm[i] of the input.
std::vector<int64_t> transpose(const std::vector<int64_t>& values, const std::vector<int64_t>& dims,
                               const std::vector<int64_t>& perm) {
  const size_t rank = dims.size();
  std::vector<int64_t> strides(rank, 1);
  for (size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  std::vector<int64_t> out;
  out.reserve(values.size());
  std::vector<int64_t> index(rank, 0);
  for (size_t n = 0; n < values.size(); ++n) {
    int64_t from = 0;
    for (size_t i = 0; i < rank; ++i) from += index[i] * strides[static_cast<size_t>(perm[i])];
    out.push_back(values[static_cast<size_t>(from)]);
    for (size_t i = rank; i-- > 0;) {
      if (++index[i] < dims[static_cast<size_t>(perm[i])]) break;
      index[i] = 0;
    }
  }
  return out;
}

std::vector<int64_t> iota(int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// iota_transform with at most `limit` elements; an absent permutation is the identity.
std::optional<std::vector<int64_t>> expand_iota(const HloIota& transform, int64_t limit) {
  const auto count = bounded_product(transform.reshape_dims, limit);
  if (!count) return std::nullopt;
  if (transform.transpose_perm.empty()) return iota(*count);
  if (!is_permutation_of_axes(transform.transpose_perm, transform.reshape_dims.size())) {
    return std::nullopt;
  }
  return transpose(iota(*count), transform.reshape_dims, transform.transpose_perm);
}

IdGroups cut(const std::vector<int64_t>& ids, int64_t group_size) {
  IdGroups out;
  for (auto it = ids.begin(); it != ids.end(); it += group_size) {
    out.emplace_back(it, it + group_size);
  }
  return out;
}

Result<IdGroups> iota_groups(const HloGroupEncoding& encoding, int64_t limit) {
  const auto ids = expand_iota(encoding.iota, limit);
  if (!ids || encoding.iota_group_size <= 0 ||
      bounded_product({encoding.iota_group_count, encoding.iota_group_size}, limit) !=
          static_cast<int64_t>(ids->size())) {
    return unsupported("its iota replica groups contradict themselves or the device assignment");
  }
  return cut(*ids, encoding.iota_group_size);
}

// A mesh with every axis split so finely that each grouped (sub-)axis is a whole axis of it.
struct SplitMesh {
  std::vector<int64_t> dims;
  std::vector<int64_t> grouped;  // indices into dims, major to minor
};

// Splits mesh axis `axis` of size `size` at the sub-axes `refs` (of that axis, by pre_size): the
// sub-axis (pre_size, s) of [size] is the middle one of [pre_size, s, size / (pre_size * s)].
bool split_axis(int64_t size, const std::vector<HloAxisRef>& refs, SplitMesh& out) {
  int64_t done = 1;
  for (const HloAxisRef& ref : refs) {
    const int64_t pre_size = ref.is_sub_axis ? ref.pre_size : 1;
    const int64_t sub_size = ref.is_sub_axis ? ref.size : size;
    if (pre_size <= 0 || sub_size <= 0 || pre_size % done != 0 || size % pre_size != 0 ||
        (size / pre_size) % sub_size != 0) {
      return false;
    }
    out.dims.push_back(pre_size / done);
    out.grouped.push_back(static_cast<int64_t>(out.dims.size()));
    out.dims.push_back(sub_size);
    done = pre_size * sub_size;
  }
  if (size % done != 0) return false;
  out.dims.push_back(size / done);
  return true;
}

std::optional<std::vector<int64_t>> mesh_ids(const HloGroupEncoding& encoding, int64_t count,
                                             int64_t limit) {
  if (!encoding.mesh_device_ids.empty()) {
    if (encoding.mesh_device_ids.size() != static_cast<size_t>(count)) return std::nullopt;
    return encoding.mesh_device_ids;
  }
  if (!encoding.has_mesh_iota) return iota(count);
  auto ids = expand_iota(encoding.mesh_iota, limit);
  if (ids && ids->size() != static_cast<size_t>(count)) return std::nullopt;
  return ids;
}

Result<IdGroups> mesh_groups(const HloGroupEncoding& encoding, int64_t limit, bool& order_certain) {
  const Status contradiction =
      unsupported("its mesh-axis replica groups contradict themselves or the device assignment");
  const auto count = bounded_product(encoding.mesh_axis_sizes, limit);
  if (!count || encoding.mesh_axis_sizes.empty() || encoding.mesh_axes.empty() ||
      encoding.mesh_axes.size() > kAxisCountMax) {
    return contradiction;
  }
  const auto ids = mesh_ids(encoding, *count, limit);
  if (!ids) return contradiction;

  const auto before = [](const HloAxisRef& a, const HloAxisRef& b) {
    return std::pair(a.mesh_axis, a.pre_size) < std::pair(b.mesh_axis, b.pre_size);
  };
  std::vector<HloAxisRef> axes = encoding.mesh_axes;
  order_certain = std::is_sorted(axes.begin(), axes.end(), before);
  std::sort(axes.begin(), axes.end(), before);

  SplitMesh mesh;
  size_t used = 0;
  for (size_t i = 0; i < encoding.mesh_axis_sizes.size(); ++i) {
    std::vector<HloAxisRef> refs;
    while (used < axes.size() && axes[used].mesh_axis == static_cast<int64_t>(i)) {
      refs.push_back(axes[used++]);
    }
    if (!split_axis(encoding.mesh_axis_sizes[i], refs, mesh)) return contradiction;
  }
  if (used != axes.size()) return contradiction;

  // The axes that are not grouped first, the grouped ones last: a group is then a run.
  std::vector<int64_t> perm;
  int64_t group_size = 1;
  for (size_t i = 0; i < mesh.dims.size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    if (std::find(mesh.grouped.begin(), mesh.grouped.end(), axis) == mesh.grouped.end()) {
      perm.push_back(axis);
    } else {
      group_size *= mesh.dims[i];
    }
  }
  perm.insert(perm.end(), mesh.grouped.begin(), mesh.grouped.end());
  return cut(transpose(*ids, mesh.dims, perm), group_size);
}

// The groups as the encoding writes them; empty for "one group of all".
Result<IdGroups> expand_groups(const HloCollective& collective, int64_t limit,
                               bool& order_certain) {
  const HloGroupEncoding& encoding = collective.groups;
  const bool has_lists = encoding.has_lists || !encoding.old_lists.empty();
  const int forms = int{has_lists} + int{encoding.has_iota} + int{encoding.has_mesh};
  if (forms > 1) return unsupported("its replica groups come in two encodings at once");
  if (forms == 0 && collective.has_unknown_fields) {
    return unsupported("it may name its groups in a way that this version of tersum does not know");
  }
  if (encoding.has_iota) return iota_groups(encoding, limit);
  if (encoding.has_mesh) return mesh_groups(encoding, limit, order_certain);
  return encoding.old_lists.empty() ? encoding.lists : encoding.old_lists;
}

// The devices of the numbers in `ids`, as the two flags of the collective define them.
class Meaning {
 public:
  Meaning(const HloCollective& collective, const HloDeviceAssignment& assignment)
      : assignment_(assignment),
        is_cross_partition_(collective.channel_id > 0),
        is_flattened_(collective.channel_id > 0 && collective.use_global_device_ids) {}

  // What the numbers count, and how many there are.
  [[nodiscard]] int64_t id_count() const {
    return is_flattened_ ? assignment_.replica_count * assignment_.computation_count
                         : assignment_.replica_count;
  }

  // Without a channel each partition has the group for itself; with one, a replica stands for all
  // of its partitions; flattened ids name single devices.
  void append_devices(const std::vector<int64_t>& ids, IdGroups& out) const {
    const int64_t partitions = assignment_.computation_count;
    if (is_flattened_) {
      auto& group = out.emplace_back();
      for (const int64_t id : ids) group.push_back(device(id));
    } else if (is_cross_partition_) {
      auto& group = out.emplace_back();
      for (const int64_t replica : ids) {
        for (int64_t p = 0; p < partitions; ++p) group.push_back(device(replica * partitions + p));
      }
    } else {
      for (int64_t p = 0; p < partitions; ++p) {
        auto& group = out.emplace_back();
        for (const int64_t replica : ids) group.push_back(device(replica * partitions + p));
      }
    }
  }

 private:
  [[nodiscard]] int64_t device(int64_t flat) const {
    return assignment_.devices[static_cast<size_t>(flat)];
  }

  const HloDeviceAssignment& assignment_;
  bool is_cross_partition_;
  bool is_flattened_;
};

// Every id below `id_count` exactly once.
bool covers_all(const IdGroups& groups, int64_t id_count) {
  std::vector<bool> seen(static_cast<size_t>(id_count), false);
  int64_t count = 0;
  for (const auto& group : groups) {
    for (const int64_t id : group) {
      if (id < 0 || id >= id_count || seen[static_cast<size_t>(id)]) return false;
      seen[static_cast<size_t>(id)] = true;
      ++count;
    }
  }
  return count == id_count;
}

bool has_duplicates(const std::vector<int64_t>& devices) {
  const std::unordered_set<int64_t> distinct(devices.begin(), devices.end());
  return distinct.size() != devices.size();
}

Result<HloGroups> flatten(const IdGroups& groups) {
  HloGroups out;
  for (const auto& group : groups) {
    if (out.group_size == 0) out.group_size = static_cast<int64_t>(group.size());
    if (group.empty() || static_cast<int64_t>(group.size()) != out.group_size) {
      return unsupported("its groups are not all of the same size");
    }
    out.devices.insert(out.devices.end(), group.begin(), group.end());
  }
  return out;
}

}  // namespace

Result<HloGroups> resolve_hlo_groups(const HloCollective& collective,
                                     const HloDeviceAssignment& assignment) {
  if (assignment.devices.empty()) {
    return unsupported("the module names no devices (it has no usable device assignment)");
  }
  if (has_duplicates(assignment.devices)) {
    return unsupported("the module's device assignment names a device twice");
  }
  if (collective.use_global_device_ids && collective.channel_id <= 0) {
    return unsupported("it has global device ids but no channel, which XLA does not define");
  }
  const Meaning meaning(collective, assignment);
  bool order_certain = true;
  auto ids =
      expand_groups(collective, static_cast<int64_t>(assignment.devices.size()), order_certain);
  if (!ids.ok()) return ids.status();
  if (ids->empty()) ids->push_back(iota(meaning.id_count()));
  if (!covers_all(*ids, meaning.id_count())) {
    return unsupported("its groups do not hold every participant exactly once");
  }
  IdGroups devices;
  for (const auto& group : *ids) meaning.append_devices(group, devices);
  auto out = flatten(devices);
  if (out.ok()) out->order_is_certain = order_certain;
  return out;
}

}  // namespace tersum
