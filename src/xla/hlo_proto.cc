#include "xla/hlo_proto.h"

#include <protozero/pbf_reader.hpp>
#include <string>

// The only translation units that include protozero (this one and hlo_edit.cc) are built with
// exceptions: its reader throws at malformed bytes. Nothing leaves `guarded` but a Result.

namespace tersum {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

// Tuples of tuples do not occur in collectives; a hostile nesting must not exhaust the stack.
constexpr int kShapeDepthMax = 16;

struct ShapeTooDeep final : protozero::exception {
  const char* what() const noexcept override { return "shapes nested too deeply"; }
};

template <typename Function>
auto guarded(std::string_view what, Function&& function) -> Result<decltype(function())> {
  try {
    return function();
  } catch (const protozero::exception& error) {
    return invalid_argument("the bytes are not a serialized " + std::string(what) + ": " +
                            error.what());
  }
}

pbf_reader reader_of(std::string_view bytes) { return pbf_reader(bytes.data(), bytes.size()); }

// The current field's value, where it has the wire type of its declaration; a field that arrives
// with another one is unknown to the declaration, so it is skipped (as protobuf does).
void read(pbf_reader& field, std::string_view& out) {
  if (field.wire_type() != pbf_wire_type::length_delimited) return field.skip();
  const auto view = field.get_view();
  out = std::string_view(view.data(), view.size());
}

void read(pbf_reader& field, int64_t& out) {
  if (field.wire_type() != pbf_wire_type::varint) return field.skip();
  out = field.get_int64();
}

void read(pbf_reader& field, bool& out) {
  int64_t value = out ? 1 : 0;
  read(field, value);
  out = value != 0;
}

// Repeated integers arrive packed or one by one; both are valid for either declaration.
void read(pbf_reader& field, std::vector<int64_t>& out) {
  if (field.wire_type() == pbf_wire_type::varint) {
    out.push_back(field.get_int64());
  } else if (field.wire_type() == pbf_wire_type::length_delimited) {
    for (const int64_t value : field.get_packed_int64()) out.push_back(value);
  } else {
    field.skip();
  }
}

// A sub-message that is present, even when empty: `out` is set for certain.
bool read_message(pbf_reader& field, std::string_view& out) {
  const bool present = field.wire_type() == pbf_wire_type::length_delimited;
  read(field, out);
  return present;
}

void read_layout(std::string_view bytes, HloShape& shape) {
  namespace f = hlo_field::LayoutProto;
  shape.has_layout = true;
  pbf_reader field = reader_of(bytes);
  while (field.next()) {
    switch (field.tag()) {
      case f::minor_to_major:
        read(field, shape.minor_to_major);
        break;
      case f::tail_padding_alignment_in_elements: {
        int64_t alignment = 1;
        read(field, alignment);
        shape.layout_is_plain = shape.layout_is_plain && alignment <= 1;
        break;
      }
      default:
        shape.layout_is_plain = false;
        field.skip();
    }
  }
}

HloShape read_shape(std::string_view bytes, int depth) {
  namespace f = hlo_field::ShapeProto;
  if (depth > kShapeDepthMax) throw ShapeTooDeep();
  HloShape shape;
  pbf_reader field = reader_of(bytes);
  while (field.next()) {
    std::string_view message;
    switch (field.tag()) {
      case f::element_type:
        read(field, shape.element_type);
        break;
      case f::dimensions:
        read(field, shape.dimensions);
        break;
      case f::tuple_shapes:
        if (read_message(field, message)) {
          shape.tuple_shapes.push_back(read_shape(message, depth + 1));
        }
        break;
      case f::layout:
        if (read_message(field, message)) read_layout(message, shape);
        break;
      case f::is_dynamic_dimension: {
        std::vector<int64_t> flags;
        read(field, flags);
        for (const int64_t flag : flags) shape.is_dynamic = shape.is_dynamic || flag != 0;
        break;
      }
      default:
        field.skip();
    }
  }
  return shape;
}

int64_t read_element_type(std::string_view shape) {
  int64_t element_type = 0;
  pbf_reader field = reader_of(shape);
  while (field.next(hlo_field::ShapeProto::element_type)) read(field, element_type);
  return element_type;
}

HloInstruction read_instruction(std::string_view bytes) {
  namespace f = hlo_field::HloInstructionProto;
  HloInstruction out;
  out.bytes = bytes;
  pbf_reader field = reader_of(bytes);
  while (field.next()) {
    switch (field.tag()) {
      case f::name:
        read(field, out.name);
        break;
      case f::opcode:
        read(field, out.opcode);
        break;
      case f::shape:
        read(field, out.shape);
        break;
      case f::parameter_number:
        read(field, out.parameter_number);
        break;
      case f::tuple_index:
        read(field, out.tuple_index);
        break;
      case f::id:
        read(field, out.id);
        break;
      case f::operand_ids:
        read(field, out.operand_ids);
        break;
      case f::called_computation_ids:
        read(field, out.called_computation_ids);
        break;
      default:
        field.skip();
    }
  }
  out.element_type = read_element_type(out.shape);
  return out;
}

HloComputation read_computation(std::string_view bytes) {
  namespace f = hlo_field::HloComputationProto;
  HloComputation out;
  pbf_reader field = reader_of(bytes);
  while (field.next()) {
    std::string_view message;
    switch (field.tag()) {
      case f::name:
        read(field, out.name);
        break;
      case f::instructions:
        if (read_message(field, message)) out.instructions.push_back(read_instruction(message));
        break;
      case f::id:
        read(field, out.id);
        break;
      case f::root_id:
        read(field, out.root_id);
        break;
      case f::is_fusion_computation:
        read(field, out.is_fusion);
        break;
      case f::execution_thread:
        read(field, out.execution_thread);
        break;
      default:
        field.skip();
    }
  }
  return out;
}

std::string_view read_op_name(std::string_view metadata) {
  std::string_view op_name;
  pbf_reader field = reader_of(metadata);
  while (field.next(hlo_field::OpMetadata::op_name)) read(field, op_name);
  return op_name;
}

// Field `number` of `message` as repeated integers.
std::vector<int64_t> read_integers(std::string_view message, uint32_t number) {
  std::vector<int64_t> out;
  pbf_reader field = reader_of(message);
  while (field.next(number)) read(field, out);
  return out;
}

// Calls `visit` with every sub-message in field `number` of `message`.
template <typename Visit>
void for_each_message(std::string_view message, uint32_t number, Visit&& visit) {
  pbf_reader field = reader_of(message);
  while (field.next(number)) {
    std::string_view inner;
    if (read_message(field, inner)) visit(inner);
  }
}

HloIota read_iota_transform(std::string_view bytes) {
  namespace f = hlo_field::IotaTransform;
  return {read_integers(bytes, f::reshape_dims), read_integers(bytes, f::transpose_perm)};
}

void read_iota_groups(std::string_view bytes, HloGroupEncoding& out) {
  namespace f = hlo_field::IotaReplicaGroupListProto;
  out.has_iota = true;
  pbf_reader field = reader_of(bytes);
  while (field.next()) {
    switch (field.tag()) {
      case f::num_replica_groups:
        read(field, out.iota_group_count);
        break;
      case f::num_devices_per_group:
        read(field, out.iota_group_size);
        break;
      case f::iota_reshape_dims:
        read(field, out.iota.reshape_dims);
        break;
      case f::iota_transpose_perm:
        read(field, out.iota.transpose_perm);
        break;
      default:
        field.skip();
    }
  }
}

void read_mesh(std::string_view bytes, HloGroupEncoding& out) {
  namespace f = hlo_field::MeshProto;
  pbf_reader field = reader_of(bytes);
  while (field.next()) {
    std::string_view message;
    switch (field.tag()) {
      case f::axes:
        if (read_message(field, message)) {
          int64_t size = 0;
          pbf_reader axis = reader_of(message);
          while (axis.next(hlo_field::MeshAxis::size)) read(axis, size);
          out.mesh_axis_sizes.push_back(size);
        }
        break;
      case f::device_ids:
        read(field, out.mesh_device_ids);
        break;
      case f::iota_transform:
        if (read_message(field, message)) {
          out.has_mesh_iota = true;
          out.mesh_iota = read_iota_transform(message);
        }
        break;
      default:
        field.skip();
    }
  }
}

HloAxisRef read_axis_ref(std::string_view bytes) {
  namespace f = hlo_field::AxisRefProto;
  HloAxisRef out;
  pbf_reader field = reader_of(bytes);
  while (field.next()) {
    // Reading a field, even skipping it, forgets the tag.
    const uint32_t tag = field.tag();
    std::string_view message;
    if (tag == f::mesh_axis_index) {
      read(field, out.mesh_axis);
    } else if (tag == f::sub_axis_info && read_message(field, message)) {
      out.is_sub_axis = true;
      pbf_reader sub = reader_of(message);
      while (sub.next()) {
        if (sub.tag() == hlo_field::SubAxis::pre_size) {
          read(sub, out.pre_size);
        } else if (sub.tag() == hlo_field::SubAxis::size) {
          read(sub, out.size);
        } else {
          sub.skip();
        }
      }
    } else if (tag != f::sub_axis_info) {
      field.skip();
    }
  }
  return out;
}

void read_frontend_attributes(std::string_view bytes, HloCollective& out) {
  // A map field is a repeated message of key (1) and value (2).
  for_each_message(bytes, hlo_field::FrontendAttributes::map, [&out](std::string_view entry) {
    std::pair<std::string_view, std::string_view> pair;
    pbf_reader field = reader_of(entry);
    while (field.next()) {
      if (field.tag() == 1) {
        read(field, pair.first);
      } else if (field.tag() == 2) {
        read(field, pair.second);
      } else {
        field.skip();
      }
    }
    out.frontend_attributes.push_back(pair);
  });
}

// The fields of the groups; false when the current field is none of them.
bool read_groups_field(pbf_reader& field, HloGroupEncoding& out) {
  namespace f = hlo_field::HloInstructionProto;
  std::string_view message;
  switch (field.tag()) {
    case f::replica_groups:
      if (read_message(field, message)) {
        out.old_lists.push_back(read_integers(message, hlo_field::ReplicaGroup::replica_ids));
      }
      return true;
    case f::collective_device_list:
      if (read_message(field, message)) {
        out.has_lists = true;
        for_each_message(
            message, hlo_field::CollectiveDeviceListProto::replica_groups,
            [&out](std::string_view group) {
              out.lists.push_back(read_integers(group, hlo_field::ReplicaGroup::replica_ids));
            });
      }
      return true;
    case f::iota_collective_device_list:
      if (read_message(field, message)) read_iota_groups(message, out);
      return true;
    case f::mesh_axes_replica_group_list:
      if (read_message(field, message)) {
        namespace m = hlo_field::MeshAxesReplicaGroupListProto;
        out.has_mesh = true;
        for_each_message(message, m::mesh, [&out](std::string_view v) { read_mesh(v, out); });
        for_each_message(message, m::axes,
                         [&out](std::string_view v) { out.mesh_axes.push_back(read_axis_ref(v)); });
      }
      return true;
    default:
      return false;
  }
}

HloCollective read_collective(std::string_view bytes) {
  namespace f = hlo_field::HloInstructionProto;
  HloCollective out;
  pbf_reader field = reader_of(bytes);
  while (field.next()) {
    std::string_view message;
    switch (field.tag()) {
      case f::shape:
        if (read_message(field, message)) out.shape = read_shape(message, 0);
        break;
      case f::metadata:
        if (read_message(field, message)) out.op_name = read_op_name(message);
        break;
      case f::dimensions:
        read(field, out.dimensions);
        break;
      case f::channel_id:
      case f::all_reduce_id:
        read(field, out.channel_id);
        break;
      case f::use_global_device_ids:
        read(field, out.use_global_device_ids);
        break;
      case f::constrain_layout:
        read(field, out.constrain_layout);
        break;
      case f::frontend_attributes:
        if (read_message(field, message)) read_frontend_attributes(message, out);
        break;
      default:
        if (read_groups_field(field, out.groups)) break;
        out.has_unknown_fields = out.has_unknown_fields || field.tag() > kHloLastKnownField;
        field.skip();
    }
  }
  return out;
}

HloDeviceAssignment read_device_assignment(std::string_view bytes) {
  namespace f = hlo_field::DeviceAssignmentProto;
  HloDeviceAssignment out;
  std::vector<std::vector<int64_t>> by_computation;
  pbf_reader field = reader_of(bytes);
  while (field.next()) {
    const uint32_t tag = field.tag();
    std::string_view message;
    if (tag == f::replica_count) {
      read(field, out.replica_count);
    } else if (tag == f::computation_count) {
      read(field, out.computation_count);
    } else if (tag == f::computation_devices && read_message(field, message)) {
      by_computation.push_back(
          read_integers(message, hlo_field::ComputationDevice::replica_device_ids));
    } else if (tag != f::computation_devices) {
      field.skip();
    }
  }
  // Left without devices (and then unusable) unless every partition lists every replica. Without a
  // partition no list would hold the number of replicas down.
  const auto replicas = static_cast<size_t>(out.replica_count);
  if (out.replica_count <= 0 || out.computation_count <= 0) return out;
  if (by_computation.size() != static_cast<size_t>(out.computation_count)) return out;
  for (const auto& devices : by_computation) {
    if (devices.size() != replicas) return out;
  }
  out.devices.reserve(replicas * by_computation.size());
  for (size_t r = 0; r < replicas; ++r) {
    for (const auto& devices : by_computation) out.devices.push_back(devices[r]);
  }
  return out;
}

}  // namespace

Result<HloModule> parse_hlo_module(std::string_view bytes) {
  return guarded("HloModuleProto", [bytes] {
    namespace f = hlo_field::HloModuleProto;
    HloModule out;
    out.bytes = bytes;
    pbf_reader field = reader_of(bytes);
    while (field.next()) {
      std::string_view message;
      switch (field.tag()) {
        case f::name:
          read(field, out.name);
          break;
        case f::computations:
          if (read_message(field, message)) out.computations.push_back(read_computation(message));
          break;
        case f::host_program_shape:
          read(field, out.host_program_shape);
          break;
        case f::device_assignment:
          read(field, out.device_assignment);
          break;
        default:
          field.skip();
      }
    }
    return out;
  });
}

Result<HloCollective> parse_hlo_collective(std::string_view instruction) {
  return guarded("HloInstructionProto", [instruction] { return read_collective(instruction); });
}

Result<HloShape> parse_hlo_shape(std::string_view shape) {
  return guarded("ShapeProto", [shape] { return read_shape(shape, 0); });
}

Result<HloDeviceAssignment> parse_hlo_device_assignment(std::string_view assignment) {
  return guarded("DeviceAssignmentProto",
                 [assignment] { return read_device_assignment(assignment); });
}

Result<std::vector<HloShape>> parse_hlo_program_shape(std::string_view program_shape) {
  return guarded("ProgramShapeProto", [program_shape] {
    namespace f = hlo_field::ProgramShapeProto;
    std::vector<HloShape> out;
    const auto add = [&out](std::string_view shape) { out.push_back(read_shape(shape, 0)); };
    for_each_message(program_shape, f::parameters, add);
    for_each_message(program_shape, f::result, add);
    return out;
  });
}

}  // namespace tersum
