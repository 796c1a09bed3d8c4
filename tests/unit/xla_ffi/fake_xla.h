// As much of XLA's FFI runtime as a handler sees: an XLA_FFI_Api, and call frames built by hand.
//
// Thread safety: futures may be fulfilled on any thread; the rest belongs to the test's.
// Invariants: a frame's arguments, names and buffers live as long as the FakeFrame, which scribbles
// over them when it is destroyed, so that a handler which kept a pointer into it is found out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "xla/ffi/api/c_api.h"

// The C API leaves these types to the runtime.
struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  std::string message;
};
struct XLA_FFI_ExecutionContext {
  int32_t device = 0;
  int64_t run_id = 0;
};
struct XLA_FFI_Future {
  std::mutex mutex;
  std::condition_variable ready;
  bool done = false;
  std::unique_ptr<XLA_FFI_Error> error;

  // Blocks until fulfilled; empty when it was without an error.
  std::string wait() {
    std::unique_lock lock(mutex);
    ready.wait(lock, [this] { return done; });
    return error == nullptr ? "" : error->message;
  }
  void fulfil(XLA_FFI_Error* cause) {
    const std::scoped_lock lock(mutex);
    done = true;
    error.reset(cause);
    ready.notify_all();
  }
};

namespace tersum::testing {

inline const XLA_FFI_Api* fake_api() {
  static const XLA_FFI_Api api = [] {
    XLA_FFI_Api it = {};
    it.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    it.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    it.api_version.major_version = XLA_FFI_API_MAJOR;
    it.api_version.minor_version = XLA_FFI_API_MINOR;
    it.XLA_FFI_Error_Create = [](XLA_FFI_Error_Create_Args* args) {
      return new XLA_FFI_Error{args->errc, args->message};
    };
    it.XLA_FFI_Error_GetMessage = [](XLA_FFI_Error_GetMessage_Args* args) {
      args->message = args->error->message.c_str();
    };
    it.XLA_FFI_Error_Destroy = [](XLA_FFI_Error_Destroy_Args* args) { delete args->error; };
    it.XLA_FFI_Future_Create = [](XLA_FFI_Future_Create_Args* args) -> XLA_FFI_Error* {
      args->future = new XLA_FFI_Future;
      return nullptr;
    };
    it.XLA_FFI_Future_SetAvailable = [](XLA_FFI_Future_SetAvailable_Args* args) -> XLA_FFI_Error* {
      args->future->fulfil(nullptr);
      return nullptr;
    };
    it.XLA_FFI_Future_SetError = [](XLA_FFI_Future_SetError_Args* args) -> XLA_FFI_Error* {
      args->future->fulfil(args->error);
      return nullptr;
    };
    it.XLA_FFI_RunId_Get = [](XLA_FFI_RunId_Get_Args* args) -> XLA_FFI_Error* {
      args->run_id = args->ctx->run_id;
      return nullptr;
    };
    it.XLA_FFI_DeviceOrdinal_Get = [](XLA_FFI_DeviceOrdinal_Get_Args* args) -> XLA_FFI_Error* {
      args->device_ordinal = args->ctx->device;
      return nullptr;
    };
    return it;
  }();
  return &api;
}

class FakeFrame {
 public:
  explicit FakeFrame(int32_t device, int64_t run_id = 1) : context_{device, run_id} {}
  ~FakeFrame() {
    for (auto& buffer : buffers_) std::memset(&buffer, 0xEE, sizeof(buffer));
    for (auto& dims : dims_) std::fill(dims.begin(), dims.end(), int64_t{0x7EEEEEEEEEEEEEEE});
    for (auto& array : arrays_) std::fill(array.begin(), array.end(), int64_t{-0x6EEEEEEE});
    for (auto& text : texts_) text.assign(text.size(), '?');
  }
  FakeFrame(const FakeFrame&) = delete;
  FakeFrame& operator=(const FakeFrame&) = delete;

  void add_argument(XLA_FFI_DataType type, void* data, std::vector<int64_t> dims) {
    arguments_.push_back(add_buffer(type, data, std::move(dims)));
  }
  void add_result(XLA_FFI_DataType type, void* data, std::vector<int64_t> dims) {
    results_.push_back(add_buffer(type, data, std::move(dims)));
  }
  void set(const std::string& name, std::vector<int64_t> values) {
    arrays_.push_back(std::move(values));
    auto& array = array_attributes_.emplace_back();
    array = {XLA_FFI_DataType_S64, arrays_.back().size(), arrays_.back().data()};
    attributes_[name] = {XLA_FFI_AttrType_ARRAY, &array};
  }
  void set(const std::string& name, int64_t value) {
    set_scalar(name, XLA_FFI_DataType_S64, value);
  }
  void set(const std::string& name, bool value) { set_scalar(name, XLA_FFI_DataType_PRED, value); }
  void set(const std::string& name, const char* value) {
    texts_.emplace_back(value);
    auto& span = text_attributes_.emplace_back();
    span = {texts_.back().data(), texts_.back().size()};
    attributes_[name] = {XLA_FFI_AttrType_STRING, &span};
  }
  void drop(const std::string& name) { attributes_.erase(name); }

  // The handler's immediate error, or its future in `future`.
  std::unique_ptr<XLA_FFI_Error> call(void* handler, std::unique_ptr<XLA_FFI_Future>& future) {
    std::vector<XLA_FFI_ArgType> argument_types(arguments_.size(), XLA_FFI_ArgType_BUFFER);
    std::vector<XLA_FFI_RetType> result_types(results_.size(), XLA_FFI_RetType_BUFFER);
    std::vector<XLA_FFI_AttrType> types;
    std::vector<XLA_FFI_ByteSpan> name_spans;
    std::vector<XLA_FFI_ByteSpan*> names;
    std::vector<void*> values;
    name_spans.reserve(attributes_.size());
    for (const auto& [name, attribute] : attributes_) {  // a map: sorted, as XLA promises
      types.push_back(attribute.first);
      name_spans.push_back({name.data(), name.size()});
      names.push_back(&name_spans.back());
      values.push_back(attribute.second);
    }
    XLA_FFI_CallFrame frame = {};
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api = fake_api();
    frame.ctx = &context_;
    frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
    frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(arguments_.size()),
                  argument_types.data(), arguments_.data()};
    frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(results_.size()),
                  result_types.data(), results_.data()};
    frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE,
                   nullptr,
                   static_cast<int64_t>(values.size()),
                   types.data(),
                   names.data(),
                   values.data()};
    std::unique_ptr<XLA_FFI_Error> error(reinterpret_cast<XLA_FFI_Handler*>(handler)(&frame));
    future.reset(frame.future);
    return error;
  }

 private:
  void* add_buffer(XLA_FFI_DataType type, void* data, std::vector<int64_t> dims) {
    dims_.push_back(std::move(dims));
    buffers_.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, type, data,
                        static_cast<int64_t>(dims_.back().size()), dims_.back().data()});
    return &buffers_.back();
  }
  void set_scalar(const std::string& name, XLA_FFI_DataType type, int64_t value) {
    numbers_.push_back(value);
    auto& scalar = scalar_attributes_.emplace_back();
    scalar = {type, &numbers_.back()};
    attributes_[name] = {XLA_FFI_AttrType_SCALAR, &scalar};
  }

  XLA_FFI_ExecutionContext context_;
  // Lists: what is pointed at stays where it is.
  std::list<std::vector<int64_t>> dims_;
  std::list<XLA_FFI_Buffer> buffers_;
  std::vector<void*> arguments_;
  std::vector<void*> results_;
  std::list<std::vector<int64_t>> arrays_;
  std::list<std::string> texts_;
  std::list<int64_t> numbers_;
  std::list<XLA_FFI_Array> array_attributes_;
  std::list<XLA_FFI_ByteSpan> text_attributes_;
  std::list<XLA_FFI_Scalar> scalar_attributes_;
  std::map<std::string, std::pair<XLA_FFI_AttrType, void*>> attributes_;
};

}  // namespace tersum::testing
