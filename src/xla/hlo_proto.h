// The parts of XLA's serialized HloModuleProto that the pass reads, as plain structures whose text
// and bytes are views into the module.
//
// Thread safety: pure functions on caller-owned bytes; every view lives as long as those bytes.
// Invariants: malformed bytes give a failed Result, never a crash or a throw; memory stays within a
// small multiple of the input; fields that are not named here are skipped, and an editor copies
// them (hlo_edit.h). Field numbers are XLA's (xla/service/hlo.proto, xla/xla_data.proto), and a
// Python test compares them with the descriptors inside whatever jaxlib is installed.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tersum/status.h"

namespace tersum {

// Field numbers, by message. tests/python/test_hlo_fields.py parses these lines.
namespace hlo_field {
namespace HloModuleProto {
inline constexpr uint32_t name = 1;
inline constexpr uint32_t computations = 3;
inline constexpr uint32_t host_program_shape = 4;
inline constexpr uint32_t device_assignment = 15;
}  // namespace HloModuleProto
namespace HloComputationProto {
inline constexpr uint32_t name = 1;
inline constexpr uint32_t instructions = 2;
inline constexpr uint32_t id = 5;
inline constexpr uint32_t root_id = 6;
inline constexpr uint32_t is_fusion_computation = 7;
inline constexpr uint32_t execution_thread = 8;
}  // namespace HloComputationProto
namespace HloInstructionProto {
inline constexpr uint32_t name = 1;
inline constexpr uint32_t opcode = 2;
inline constexpr uint32_t shape = 3;
inline constexpr uint32_t metadata = 7;
inline constexpr uint32_t parameter_number = 9;
inline constexpr uint32_t tuple_index = 13;
inline constexpr uint32_t dimensions = 14;
inline constexpr uint32_t channel_id = 26;
inline constexpr uint32_t custom_call_target = 28;
inline constexpr uint32_t id = 35;
inline constexpr uint32_t operand_ids = 36;
inline constexpr uint32_t called_computation_ids = 38;
inline constexpr uint32_t backend_config = 43;
inline constexpr uint32_t all_reduce_id = 45;
inline constexpr uint32_t replica_groups = 49;
inline constexpr uint32_t constrain_layout = 56;
inline constexpr uint32_t frontend_attributes = 68;
inline constexpr uint32_t use_global_device_ids = 71;
inline constexpr uint32_t custom_call_api_version = 77;
inline constexpr uint32_t collective_device_list = 87;
inline constexpr uint32_t iota_collective_device_list = 92;
inline constexpr uint32_t mesh_axes_replica_group_list = 93;
inline constexpr uint32_t backend_config_payload = 99;
}  // namespace HloInstructionProto
namespace OpMetadata {
inline constexpr uint32_t op_name = 2;
}  // namespace OpMetadata
namespace FrontendAttributes {
inline constexpr uint32_t map = 1;
}  // namespace FrontendAttributes
namespace ProgramShapeProto {
inline constexpr uint32_t parameters = 1;
inline constexpr uint32_t result = 2;
}  // namespace ProgramShapeProto
namespace ReplicaGroup {
inline constexpr uint32_t replica_ids = 1;
}  // namespace ReplicaGroup
namespace CollectiveDeviceListProto {
inline constexpr uint32_t replica_groups = 1;
}  // namespace CollectiveDeviceListProto
namespace IotaReplicaGroupListProto {
inline constexpr uint32_t num_replica_groups = 1;
inline constexpr uint32_t num_devices_per_group = 2;
inline constexpr uint32_t iota_reshape_dims = 3;
inline constexpr uint32_t iota_transpose_perm = 4;
}  // namespace IotaReplicaGroupListProto
namespace MeshAxesReplicaGroupListProto {
inline constexpr uint32_t mesh = 1;
inline constexpr uint32_t axes = 2;
}  // namespace MeshAxesReplicaGroupListProto
namespace MeshProto {
inline constexpr uint32_t axes = 1;
inline constexpr uint32_t device_ids = 2;
inline constexpr uint32_t iota_transform = 3;
}  // namespace MeshProto
namespace MeshAxis {
inline constexpr uint32_t size = 2;
}  // namespace MeshAxis
namespace IotaTransform {
inline constexpr uint32_t reshape_dims = 1;
inline constexpr uint32_t transpose_perm = 2;
}  // namespace IotaTransform
namespace AxisRefProto {
inline constexpr uint32_t mesh_axis_index = 1;
inline constexpr uint32_t sub_axis_info = 2;
}  // namespace AxisRefProto
namespace SubAxis {
inline constexpr uint32_t pre_size = 1;
inline constexpr uint32_t size = 2;
}  // namespace SubAxis
namespace DeviceAssignmentProto {
inline constexpr uint32_t replica_count = 1;
inline constexpr uint32_t computation_count = 2;
inline constexpr uint32_t computation_devices = 3;
}  // namespace DeviceAssignmentProto
namespace ComputationDevice {
inline constexpr uint32_t replica_device_ids = 1;
}  // namespace ComputationDevice
namespace ShapeProto {
inline constexpr uint32_t element_type = 2;
inline constexpr uint32_t dimensions = 3;
inline constexpr uint32_t tuple_shapes = 4;
inline constexpr uint32_t layout = 5;
inline constexpr uint32_t is_dynamic_dimension = 6;
}  // namespace ShapeProto
namespace LayoutProto {
inline constexpr uint32_t minor_to_major = 1;
inline constexpr uint32_t tail_padding_alignment_in_elements = 16;
}  // namespace LayoutProto
}  // namespace hlo_field

// The largest field number of HloInstructionProto when this was written (jaxlib 0.10.2).
inline constexpr uint32_t kHloLastKnownField = 99;

// xla.PrimitiveType, as far as the pass tells types apart.
enum HloElementType : int64_t { kHloF16 = 10, kHloF32 = 11, kHloTuple = 13, kHloBf16 = 16 };
// "f32", "tuple", …; "other" for a type that is not in the table.
std::string_view hlo_element_type_name(int64_t element_type);
// Bytes of one element, 0 where it is not a whole number of bytes or not known.
int64_t hlo_element_bytes(int64_t element_type);

struct HloShape {
  int64_t element_type = 0;
  std::vector<int64_t> dimensions;
  std::vector<HloShape> tuple_shapes;
  bool is_dynamic = false;
  bool has_layout = false;
  // False when the layout says anything beyond minor_to_major: tiles, padding, packed elements,
  // another memory space, a sparse format.
  bool layout_is_plain = true;
  std::vector<int64_t> minor_to_major;
};

struct HloInstruction {
  std::string_view bytes;  // the whole message
  std::string_view name;
  std::string_view opcode;
  std::string_view shape;  // a ShapeProto
  int64_t element_type = 0;
  int64_t id = 0;
  int64_t parameter_number = 0;
  int64_t tuple_index = 0;
  std::vector<int64_t> operand_ids;
  std::vector<int64_t> called_computation_ids;
};

struct HloComputation {
  std::string_view name;
  std::string_view execution_thread;
  int64_t id = 0;
  int64_t root_id = 0;
  bool is_fusion = false;
  std::vector<HloInstruction> instructions;
};

// devices[r * computation_count + c] is the global id of the device of replica r, partition c.
struct HloDeviceAssignment {
  int64_t replica_count = 0;
  int64_t computation_count = 0;
  std::vector<int64_t> devices;
};

struct HloModule {
  std::string_view bytes;
  std::string_view name;
  std::string_view host_program_shape;
  std::string_view device_assignment;
  std::vector<HloComputation> computations;
};

// iota(product of reshape_dims), reshaped to them, transposed by transpose_perm (as NumPy does).
struct HloIota {
  std::vector<int64_t> reshape_dims;
  std::vector<int64_t> transpose_perm;
};

struct HloAxisRef {
  int64_t mesh_axis = 0;
  bool is_sub_axis = false;
  int64_t pre_size = 0;
  int64_t size = 0;
};

// The replica groups of a collective, in whichever of XLA's four encodings they came.
struct HloGroupEncoding {
  std::vector<std::vector<int64_t>> old_lists;  // field 49; goes before 87 where it is not empty
  bool has_lists = false;                       // field 87
  std::vector<std::vector<int64_t>> lists;
  bool has_iota = false;  // field 92
  int64_t iota_group_count = 0;
  int64_t iota_group_size = 0;
  HloIota iota;
  bool has_mesh = false;  // field 93
  std::vector<int64_t> mesh_axis_sizes;
  std::vector<int64_t> mesh_device_ids;
  bool has_mesh_iota = false;
  HloIota mesh_iota;
  std::vector<HloAxisRef> mesh_axes;
};

// What only collectives have.
struct HloCollective {
  HloShape shape;
  std::string_view op_name;  // metadata: "jit(step)/psum"
  std::vector<int64_t> dimensions;
  int64_t channel_id = 0;
  bool use_global_device_ids = false;
  bool constrain_layout = false;
  // A field that XLA added after this code was written: see kHloLastKnownField.
  bool has_unknown_fields = false;
  std::vector<std::pair<std::string_view, std::string_view>> frontend_attributes;
  HloGroupEncoding groups;
};

// kInvalidArgument: not a serialized HloModuleProto.
Result<HloModule> parse_hlo_module(std::string_view bytes);
Result<HloCollective> parse_hlo_collective(std::string_view instruction);
Result<HloShape> parse_hlo_shape(std::string_view shape);
Result<HloDeviceAssignment> parse_hlo_device_assignment(std::string_view assignment);
// Parameters, then the result.
Result<std::vector<HloShape>> parse_hlo_program_shape(std::string_view program_shape);

}  // namespace tersum
