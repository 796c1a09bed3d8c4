// Lists of many small arrays, looked at as they lie: a conversion of each to an array object of
// ours would take longer than the call.

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings.h"
#include "plain_array.h"

namespace tersum::python {

namespace nb = nanobind;

namespace {

// The memory of a Python object for as long as this lives, whatever its element type is called.
// Needs the GIL; raises if there is none, or if it is not contiguous.
class Memory {
 public:
  Memory(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { PyBuffer_Release(&view_); }

  [[nodiscard]] const Py_buffer& view() const { return view_; }

 private:
  Py_buffer view_{};
};

}  // namespace

std::optional<DataType> plain_tensors(const nb::list& inputs, const nb::list& outputs,
                                      std::vector<TensorRef>* tensors) {
  if (inputs.size() != outputs.size()) return std::nullopt;
  std::optional<DataType> common;
  tensors->reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const nb::handle source = inputs[i], target = outputs[i];
    const PlainArray to(target, true);
    if (i == 0) common = to.type();
    if (!common || to.type() != common) return std::nullopt;
    const PlainArray from(source, false);
    if (from.type() != common || !from.same_shape(to) || from.overlaps(to)) return std::nullopt;
    tensors->push_back({from.data(), to.data(), from.count()});
  }
  return common;
}

std::vector<TensorRef> tensors_or_throw(const nb::list& inputs, const nb::list& outputs,
                                        DataType type) {
  std::vector<TensorRef> tensors;
  tensors.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Memory input(inputs[i], PyBUF_SIMPLE);
    const Memory output(outputs[i], PyBUF_WRITABLE);
    if (input.view().len != output.view().len) {
      throw_status(invalid_argument("tensor " + std::to_string(i) + " and its output differ"));
    }
    tensors.push_back({input.view().buf, output.view().buf,
                       static_cast<size_t>(input.view().len) / element_bytes(type)});
  }
  return tensors;
}

}  // namespace tersum::python
