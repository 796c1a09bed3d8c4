#include "xla/hlo_fingerprint.h"

#include <xxhash.h>

#include "base/bytes.h"

namespace tersum {

HloFingerprint::HloFingerprint(const HloModule& module, const HloDeviceAssignment& assignment) {
  add_text(module.name);
  const auto shapes = parse_hlo_program_shape(module.host_program_shape);
  if (shapes.ok()) {
    for (const HloShape& shape : shapes.value()) add_shape(shape);
  }
  add_number(assignment.replica_count);
  add_number(assignment.computation_count);
  add_numbers(assignment.devices);
}

void HloFingerprint::add(std::string_view opcode, const HloCollective& collective) {
  add_text(opcode);
  add_text(collective.op_name);
  add_shape(collective.shape);
  add_numbers(collective.dimensions);
  // A channel's number is a counter; whether there is one has a meaning.
  add_number(collective.channel_id > 0 ? 1 : 0);
  add_number(collective.use_global_device_ids ? 1 : 0);
  add_groups(collective.groups);
}

int64_t HloFingerprint::value() const {
  return static_cast<int64_t>(XXH3_64bits(bytes_.data(), bytes_.size()));
}

void HloFingerprint::add_number(int64_t value) {
  char raw[sizeof(value)];
  store_le(reinterpret_cast<std::byte*>(raw), value);
  bytes_.append(raw, sizeof(raw));
}

// Lengths go first, so that no two lists of values give the same bytes.
void HloFingerprint::add_numbers(const std::vector<int64_t>& values) {
  add_number(static_cast<int64_t>(values.size()));
  for (const int64_t value : values) add_number(value);
}

void HloFingerprint::add_text(std::string_view text) {
  add_number(static_cast<int64_t>(text.size()));
  bytes_.append(text);
}

void HloFingerprint::add_shape(const HloShape& shape) {
  add_number(shape.element_type);
  add_numbers(shape.dimensions);
  add_number(static_cast<int64_t>(shape.tuple_shapes.size()));
  for (const HloShape& element : shape.tuple_shapes) add_shape(element);
}

void HloFingerprint::add_iota(const HloIota& iota) {
  add_numbers(iota.reshape_dims);
  add_numbers(iota.transpose_perm);
}

void HloFingerprint::add_groups(const HloGroupEncoding& groups) {
  for (const auto& list : groups.old_lists) add_numbers(list);
  for (const auto& list : groups.lists) add_numbers(list);
  add_number(groups.iota_group_count);
  add_number(groups.iota_group_size);
  add_iota(groups.iota);
  add_numbers(groups.mesh_axis_sizes);
  add_numbers(groups.mesh_device_ids);
  add_iota(groups.mesh_iota);
  for (const HloAxisRef& axis : groups.mesh_axes) {
    add_numbers({axis.mesh_axis, axis.pre_size, axis.size});
  }
}

}  // namespace tersum
