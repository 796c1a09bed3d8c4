// Stores from and for Python.

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "bindings.h"

namespace tersum::python {

namespace nb = nanobind;

namespace {

// How often a wait looks for signals.
constexpr int64_t kSignalSliceMs = 100;

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

// A store that a Python caller wrote. Thread safety: as the object's own.
class PythonStore final : public Store {
 public:
  explicit PythonStore(nb::object object) : object_(std::move(object)) {}
  ~PythonStore() override {
    nb::gil_scoped_acquire gil;
    object_.reset();
  }

  Status set(std::string_view key, std::string_view value) override {
    nb::gil_scoped_acquire gil;
    try {
      object_.attr("set")(nb::str(key.data(), key.size()), to_bytes(value));
      return ok_status();
    } catch (nb::python_error& error) {
      return failure("set", key, error);
    }
  }

  Result<std::string> wait(std::string_view key, int64_t timeout_ms) override {
    nb::gil_scoped_acquire gil;
    try {
      nb::object value = object_.attr("wait")(nb::str(key.data(), key.size()), timeout_ms);
      if (!nb::isinstance<nb::bytes>(value)) {
        return invalid_argument("the store's wait(key, timeout_ms) must return bytes, not " +
                                nb::cast<std::string>(nb::str(value.type().attr("__name__"))));
      }
      nb::bytes bytes = nb::cast<nb::bytes>(value);
      return std::string(bytes.c_str(), bytes.size());
    } catch (nb::python_error& error) {
      return failure("wait", key, error);
    }
  }

  [[nodiscard]] std::string host() const override {
    nb::gil_scoped_acquire gil;
    try {
      if (!nb::hasattr(object_, "host")) return "";
      nb::object host = object_.attr("host");
      if (PyCallable_Check(host.ptr()) != 0) host = host();
      return nb::cast<std::string>(host);
    } catch (const std::exception&) {
      return "";
    }
  }

 private:
  static Status failure(const char* method, std::string_view key, nb::python_error& error) {
    // What is no Exception (Ctrl-C inside the caller's code) must not end as an error text: raise
    // the signal again, for the loop that looks for signals.
    if (!error.matches(PyExc_Exception)) PyErr_SetInterrupt();
    const bool timeout = error.matches(PyExc_TimeoutError);
    return Status(timeout ? StatusCode::kTimeout : StatusCode::kUnavailable,
                  std::string("the caller's store failed in ") + method + "(\"" + std::string(key) +
                      "\"): " + nb::cast<std::string>(nb::str(error.type().attr("__name__"))) +
                      ": " + nb::cast<std::string>(nb::str(error.value())));
  }

  nb::object object_;
};

// Servers of this process by URL, so that several communicators of it may name the same one.
class ServedStores {
 public:
  std::shared_ptr<Store> find(const std::string& url) {
    std::lock_guard lock(mutex_);
    return stores_[url].lock();
  }
  void remember(const std::string& url, const std::shared_ptr<Store>& store) {
    std::lock_guard lock(mutex_);
    stores_[url] = store;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Store>> stores_;
};

ServedStores& served_stores() {
  static ServedStores stores;
  return stores;
}

// Raises what a signal's handler raised, if a signal came. Needs the GIL.
void throw_on_signal() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

std::shared_ptr<Store> open_url(const std::string& url, int rank, int64_t timeout_ms) {
  if (std::shared_ptr<Store> served = rank == 0 ? served_stores().find(url) : nullptr) {
    return served;
  }
  // A rank that waits for its server does so in short attempts, to see signals in between.
  for (int64_t left_ms = timeout_ms;;) {
    const int64_t attempt_ms = std::max<int64_t>(1, std::min<int64_t>(left_ms, 1'000));
    Result<std::shared_ptr<Store>> opened = [&]() -> Result<std::shared_ptr<Store>> {
      nb::gil_scoped_release release;
      return open_store(url, rank, attempt_ms);
    }();
    throw_on_signal();
    left_ms -= attempt_ms;
    if (opened.ok()) {
      if (rank == 0) served_stores().remember(url, opened.value());
      return opened.value();
    }
    if (opened.status().code() != StatusCode::kTimeout || left_ms <= 0) {
      throw_status(opened.status());
    }
  }
}

bool has_method(nb::handle object, const char* name) {
  return nb::hasattr(object, name) && PyCallable_Check(nb::getattr(object, name).ptr()) != 0;
}

}  // namespace

std::shared_ptr<Store> store_from_python(nb::object source, int rank, int64_t timeout_ms) {
  if (nb::isinstance<nb::str>(source)) {
    return open_url(nb::cast<std::string>(source), rank, timeout_ms);
  }
  if (nb::isinstance<Store>(source)) return nb::cast<std::shared_ptr<Store>>(source);
  if (has_method(source, "set") && has_method(source, "wait")) {
    return std::make_shared<PythonStore>(std::move(source));
  }
  throw_status(invalid_argument(
      "store must be \"tcp://host:port\", \"file:///directory\", a tersum store, or an object with "
      "set(key, value) and wait(key, timeout_ms); got " +
      nb::cast<std::string>(nb::str(source.type().attr("__name__")))));
}

InterruptibleStore::~InterruptibleStore() {
  nb::gil_scoped_acquire gil;
  interrupt_.reset();
  inner_.reset();
}

Status InterruptibleStore::set(std::string_view key, std::string_view value) {
  return inner_->set(key, value);
}

Result<std::string> InterruptibleStore::wait(std::string_view key, int64_t timeout_ms) {
  for (int64_t left_ms = timeout_ms;;) {
    const int64_t slice_ms = std::min(left_ms, kSignalSliceMs);
    Result<std::string> value = inner_->wait(key, slice_ms);
    left_ms -= slice_ms;
    {
      nb::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) {
        interrupt_ = std::make_unique<nb::python_error>();
        return Status(StatusCode::kAborted, "interrupted by a signal");
      }
    }
    if (value.ok() || value.status().code() != StatusCode::kTimeout || left_ms <= 0) return value;
  }
}

std::string InterruptibleStore::host() const { return inner_->host(); }

void InterruptibleStore::throw_interrupt() {
  if (interrupt_ != nullptr) throw nb::python_error(std::move(*std::exchange(interrupt_, nullptr)));
}

void bind_stores(nb::module_& module) {
  nb::class_<Store>(module, "Store",
                    "The key-value service through which ranks find each other. Any thread.")
      .def(
          "set",
          [](Store& store, const std::string& key, nb::bytes value) {
            const std::string copy(value.c_str(), value.size());
            Status status;
            {
              nb::gil_scoped_release release;
              status = store.set(key, copy);
            }
            throw_if_error(status);
          },
          nb::arg("key"), nb::arg("value"), "Makes `value` visible under `key`, once and for all.")
      .def(
          "wait",
          [](std::shared_ptr<Store> store, const std::string& key, int64_t timeout_ms) {
            auto waiting = std::make_shared<InterruptibleStore>(std::move(store));
            Result<std::string> value = [&] {
              nb::gil_scoped_release release;
              return waiting->wait(key, timeout_ms);
            }();
            waiting->throw_interrupt();
            const std::string bytes = value_or_throw(std::move(value));
            return to_bytes(bytes);
          },
          nb::arg("key"), nb::arg("timeout_ms"),
          "Waits until `key` is set and returns its value; TimeoutError after `timeout_ms`.")
      .def(
          "host", [](const Store& store) { return store.host(); },
          "The host that the store is reached at; empty where there is none.");
  module.def("open_store", &store_from_python, nb::arg("source"), nb::arg("rank"),
             nb::arg("timeout_ms"), "Opens a store by URL, or wraps one written in Python.");
}

}  // namespace tersum::python
