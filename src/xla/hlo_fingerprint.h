// A number for a module that all processes of one program compute alike.
//
// It is part of a call's identity (groups, fingerprint, operation number, run id, occurrence), so
// two processes must never differ, and two programs that run at once should. Measured with jax
// 0.10.2 on two processes of one program: the serialized modules differ in `id` (a counter of the
// process) and `stack_frame_index` (file names). On unlike machines they may differ in more:
// XLA:CPU fuses and lowers by the CPU's features. Hashed is therefore not the text but what the
// processes must agree on for the program to work at all: the module's name, the types and sizes of
// its arguments and results, the device assignment, and of each collective its opcode, place in the
// user's program (op_name), shapes, dimensions and groups, in order.
//
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "xla/hlo_proto.h"

namespace tersum {

class HloFingerprint {
 public:
  // Starts with what the whole module says.
  HloFingerprint(const HloModule& module, const HloDeviceAssignment& assignment);
  // Adds the next collective of the module.
  void add(std::string_view opcode, const HloCollective& collective);
  // XXH3, 64 bits, of all that was added.
  [[nodiscard]] int64_t value() const;

 private:
  void add_number(int64_t value);
  void add_numbers(const std::vector<int64_t>& values);
  void add_text(std::string_view text);
  void add_shape(const HloShape& shape);
  void add_iota(const HloIota& iota);
  void add_groups(const HloGroupEncoding& groups);

  std::string bytes_;
};

}  // namespace tersum
