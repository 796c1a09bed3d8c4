#include "xla/hlo_edit.h"

#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "xla/hlo_proto.h"

// Built with exceptions, like hlo_proto.cc.

namespace tersum {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::pbf_writer;

// xla.CustomCallApiVersion: API_VERSION_TYPED_FFI.
constexpr int kApiVersionTypedFfi = 4;

// Walks the fields of a message and knows the bytes, tag included, of the one it stands on.
class FieldWalker {
 public:
  explicit FieldWalker(std::string_view message) : reader_(message.data(), message.size()) {}

  bool next() {
    start_ = reader_.data().data();
    return reader_.next();
  }
  [[nodiscard]] bool is_message(uint32_t number) const {
    return reader_.tag() == number && reader_.wire_type() == pbf_wire_type::length_delimited;
  }
  [[nodiscard]] uint32_t number() const { return reader_.tag(); }
  // Each of these two moves past the field.
  std::string_view message() {
    const auto view = reader_.get_view();
    return {view.data(), view.size()};
  }
  std::string_view raw() {
    reader_.skip();
    return {start_, static_cast<size_t>(reader_.data().data() - start_)};
  }

 private:
  pbf_reader reader_;
  const char* start_ = nullptr;
};

class ModuleEditor {
 public:
  explicit ModuleEditor(const std::vector<HloReplacement>& replacements)
      : replacements_(replacements) {}

  std::string edit(std::string_view module) {
    std::string out;
    out.reserve(module.size() + module.size() / 8);
    FieldWalker field(module);
    size_t computation = 0;
    while (field.next()) {
      const bool is_computation = field.is_message(hlo_field::HloModuleProto::computations);
      if (is_computation && is_edited(computation)) {
        const std::string edited = edit_computation(field.message(), computation);
        pbf_writer(out).add_message(hlo_field::HloModuleProto::computations, edited);
      } else {
        out.append(field.raw());
      }
      if (is_computation) ++computation;
    }
    return out;
  }

  [[nodiscard]] bool used_all() const { return next_ == replacements_.size(); }

 private:
  [[nodiscard]] bool is_edited(size_t computation) const {
    return next_ < replacements_.size() && replacements_[next_].computation == computation;
  }

  std::string edit_computation(std::string_view message, size_t computation) {
    std::string out;
    out.reserve(message.size() + message.size() / 8);
    FieldWalker field(message);
    size_t instruction = 0;
    while (field.next()) {
      if (!field.is_message(hlo_field::HloComputationProto::instructions)) {
        out.append(field.raw());
        continue;
      }
      const bool replaced =
          is_edited(computation) && replacements_[next_].instruction == instruction;
      ++instruction;
      const std::string_view raw = field.raw();
      if (!replaced) {
        out.append(raw);
      } else {
        pbf_writer(out).add_message(hlo_field::HloComputationProto::instructions,
                                    replacements_[next_].bytes);
        ++next_;
      }
    }
    return out;
  }

  const std::vector<HloReplacement>& replacements_;
  size_t next_ = 0;
};

bool is_dropped(uint32_t number) {
  namespace f = hlo_field::HloInstructionProto;
  switch (number) {
    case f::dimensions:
    case f::channel_id:
    case f::all_reduce_id:
    case f::called_computation_ids:
    case f::replica_groups:
    case f::use_global_device_ids:
    case f::collective_device_list:
    case f::iota_collective_device_list:
    case f::mesh_axes_replica_group_list:
    // Replaced by what the call carries:
    case f::custom_call_target:
    case f::custom_call_api_version:
    case f::backend_config:
    case f::backend_config_payload:
      return true;
    default:
      return false;
  }
}

std::string custom_call_bytes(std::string_view instruction, std::string_view target,
                              std::string_view attributes) {
  namespace f = hlo_field::HloInstructionProto;
  std::string out;
  out.reserve(instruction.size() + target.size() + attributes.size() + 32);
  FieldWalker field(instruction);
  while (field.next()) {
    const uint32_t number = field.number();
    const std::string_view raw = field.raw();
    if (number == f::opcode) {
      pbf_writer(out).add_string(f::opcode, "custom-call");
    } else if (!is_dropped(number)) {
      out.append(raw);
    }
  }
  pbf_writer writer(out);
  writer.add_string(f::custom_call_target, target.data(), target.size());
  writer.add_bytes(f::backend_config, attributes.data(), attributes.size());
  writer.add_enum(f::custom_call_api_version, kApiVersionTypedFfi);
  return out;
}

Status malformed(const char* what) {
  return invalid_argument(std::string("cannot edit the module: ") + what);
}

}  // namespace

Result<std::string> replace_hlo_instructions(std::string_view module,
                                             const std::vector<HloReplacement>& replacements) {
  try {
    ModuleEditor editor(replacements);
    std::string out = editor.edit(module);
    if (!editor.used_all())
      return malformed("a replacement names an instruction that is not there");
    return out;
  } catch (const protozero::exception& error) {
    return malformed(error.what());
  }
}

Result<std::string> make_ffi_custom_call(std::string_view instruction, std::string_view target,
                                         std::string_view attributes) {
  try {
    return custom_call_bytes(instruction, target, attributes);
  } catch (const protozero::exception& error) {
    return malformed(error.what());
  }
}

}  // namespace tersum
