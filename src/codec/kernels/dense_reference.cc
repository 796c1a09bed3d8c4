#include "codec/kernels/dense_reference.h"

#include "base/copy_bytes.h"
#include "codec/kernels/dense_elements.h"

namespace tersum {
namespace {

template <class Wire, class Value>
typename Value::Acc combine_one(const CombineArgs& args, size_t index) {
  typename Value::Acc result{};
  bool first = true;
  const auto add = [&](typename Value::Acc value) {
    result = first ? value : reduce_pair(args.finish.op, result, value);
    first = false;
  };
  for (size_t w = 0; w <= args.wire_count; ++w) {
    if (args.own != nullptr && w == args.own_index) {
      add(Value::load(static_cast<const std::byte*>(args.own), index));
    }
    if (w < args.wire_count) add(Wire::load(args.wires[w], index));
  }
  return finish_value(args.finish, result);
}

}  // namespace

void reference_encode(const DenseFormat& format, const void* values, size_t count,
                      std::byte* wire) {
  if (format.wire == DenseWire::kExact) {
    copy_bytes(wire, values, dense_wire_bytes(format, count));
    return;
  }
  with_elements(format, [&]<class Wire, class Value>() {
    if constexpr (!std::is_same_v<Wire, Value>) {
      for (size_t i = 0; i < count; ++i) {
        Wire::store(Value::load(static_cast<const std::byte*>(values), i), wire, i);
      }
    }
  });
}

void reference_decode(const DenseFormat& format, const std::byte* wire, size_t count,
                      void* values) {
  if (format.wire == DenseWire::kExact) {
    copy_bytes(values, wire, dense_wire_bytes(format, count));
    return;
  }
  with_elements(format, [&]<class Wire, class Value>() {
    if constexpr (!std::is_same_v<Wire, Value>) {
      for (size_t i = 0; i < count; ++i) {
        Value::store(Wire::load(wire, i), static_cast<std::byte*>(values), i);
      }
    }
  });
}

void reference_combine_from(const DenseFormat& format, const CombineArgs& args, size_t begin) {
  with_elements(format, [&]<class Wire, class Value>() {
    auto* const values = static_cast<std::byte*>(args.values_out);
    for (size_t i = begin; i < args.count; ++i) {
      const auto result = combine_one<Wire, Value>(args, i);
      if (args.wire_out == nullptr) {
        Value::store(result, values, i);
        continue;
      }
      Wire::store(result, args.wire_out, i);
      if (values != nullptr) Value::store(Wire::load(args.wire_out, i), values, i);
    }
  });
}

void reference_combine(const DenseFormat& format, const CombineArgs& args) {
  reference_combine_from(format, args, 0);
}

}  // namespace tersum
