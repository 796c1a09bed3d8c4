// bindings.h: what the files of tersum._core share.
//
// Thread safety: everything here needs the GIL unless it says otherwise.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tersum/communicator.h"
#include "tersum/data_type.h"
#include "tersum/options.h"
#include "tersum/status.h"
#include "tersum/store.h"

namespace tersum::python {

// Raises the Python exception of `status`'s code (tersum.errors) as a C++ nanobind::python_error.
[[noreturn]] void throw_status(const Status& status);
inline void throw_if_error(const Status& status) {
  if (!status.ok()) throw_status(status);
}
// The value, or the exception of its absence.
template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw_status(result.status());
  return std::move(result).value();
}

// Parsed names; InvalidArgumentError with what is allowed otherwise.
DataType data_type_or_throw(const std::string& text);
ReduceOp reduce_op_or_throw(const std::string& text);
PlanKind plan_kind_or_throw(const std::string& text);
Collective collective_or_throw(const std::string& text);
TransportKind transport_kind_or_throw(const std::string& text);

// A store from what a Python caller may name one by: a URL ("tcp://host:port", served by rank 0 of
// this process; "file:///directory"), a store object of tersum, or any object with
// set(key: str, value: bytes) and wait(key: str, timeout_ms: int) -> bytes (and host() -> str).
// Opening waits up to `timeout_ms` for a TCP server, and answers Ctrl-C meanwhile. The methods of
// the store returned take the GIL where they need it, so callers release it around C++ calls.
std::shared_ptr<Store> store_from_python(nanobind::object source, int rank, int64_t timeout_ms);

// Wraps a store so that its wait() answers Ctrl-C. After a failed call with it, throw_interrupt()
// rethrows what the signal's handler raised, if anything.
class InterruptibleStore final : public Store {
 public:
  explicit InterruptibleStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}
  ~InterruptibleStore() override;

  Status set(std::string_view key, std::string_view value) override;
  Result<std::string> wait(std::string_view key, int64_t timeout_ms) override;
  [[nodiscard]] std::string host() const override;

  void throw_interrupt();

 private:
  std::shared_ptr<Store> inner_;
  std::unique_ptr<nanobind::python_error> interrupt_;
};

// The one element type of all arrays, if they are plain (plain_array.h) and the outputs are
// writable and fit them; empty if anything needs a closer look (or there is none).
std::optional<DataType> plain_tensors(const nanobind::list& inputs, const nanobind::list& outputs,
                                      std::vector<TensorRef>* tensors);
// The tensors of a coalesced call. Views the arrays, which the caller keeps alive.
std::vector<TensorRef> tensors_or_throw(const nanobind::list& inputs, const nanobind::list& outputs,
                                        DataType type);

void bind_arrays(nanobind::module_& module);
void bind_stores(nanobind::module_& module);
void bind_communicator(nanobind::module_& module);
void bind_info(nanobind::module_& module);
void bind_metrics(nanobind::module_& module);
void bind_plans(nanobind::module_& module);
// The JAX part: xla_bindings.cc, or no_xla_bindings.cc in a build without XLA's headers. Sets
// `has_xla` of the module.
void bind_xla(nanobind::module_& module);

}  // namespace tersum::python
