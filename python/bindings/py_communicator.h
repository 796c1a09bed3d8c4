// Communicator as Python holds it, with the arrays of its calls in flight.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tersum/communicator.h"

namespace tersum::python {

namespace nb = nanobind;

using Input = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::c_contig, nb::device::cpu>;

// How a call is made: tersum::CallOptions with a codec's name of its own.
struct PyCallOptions {
  std::string codec;
  PlanKind plan = PlanKind::kAuto;
  int64_t timeout_ms = 0;
  double max_rel_error = 0;
  bool attended = false;
  size_t channels = 0;
  std::string site;
};

// A call in flight and what must live until it ends: its codec's name and its arrays. The arrays
// are released (with the GIL) when the call has ended, not when Python forgets the Work.
struct PendingCall {
  Work work;
  std::string codec;
  std::string site;
  Input input;
  Output output;
  std::array<Input, 2> added;  // residual and bias
  nb::object lists;            // of a coalesced call
};

// One communicator as Python holds it. Thread safety: any thread; `mutex_` guards the list of
// calls. The GIL is never taken while `mutex_` is held.
class PyCommunicator {
 public:
  PyCommunicator(Communicator communicator, std::shared_ptr<Store> store)
      : communicator_(std::move(communicator)), store_(std::move(store)) {}
  PyCommunicator(const PyCommunicator&) = delete;
  PyCommunicator& operator=(const PyCommunicator&) = delete;
  ~PyCommunicator() { close(); }

  Communicator& get() { return communicator_; }
  [[nodiscard]] const std::shared_ptr<Store>& store() const { return store_; }

  void hold(std::shared_ptr<PendingCall> call) {
    std::vector<std::shared_ptr<PendingCall>> ended = take_ended();
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }

  // Forgets the calls that have ended, and with them their arrays. Needs the GIL.
  void sweep() { take_ended(); }

  // Ends all calls, then lets go of their arrays. Needs the GIL, and releases it while it waits.
  void close() {
    std::vector<std::shared_ptr<PendingCall>> calls;
    {
      std::lock_guard lock(mutex_);
      calls.swap(calls_);
    }
    {
      nb::gil_scoped_release release;
      communicator_.close();
      for (const auto& call : calls) (void)call->work.wait();
    }
  }

 private:
  std::vector<std::shared_ptr<PendingCall>> take_ended() {
    std::vector<std::shared_ptr<PendingCall>> ended;
    std::lock_guard lock(mutex_);
    const auto first = std::partition(calls_.begin(), calls_.end(),
                                      [](const auto& call) { return !call->work.done(); });
    ended.assign(std::make_move_iterator(first), std::make_move_iterator(calls_.end()));
    calls_.erase(first, calls_.end());
    return ended;
  }

  Communicator communicator_;
  std::shared_ptr<Store> store_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<PendingCall>> calls_;
};

using PyCommunicatorPtr = std::shared_ptr<PyCommunicator>;

// tune, choose, and what calls have learned or lost (learned_state_bindings.cc).
void bind_learned_state(nb::class_<PyCommunicator>& type);

}  // namespace tersum::python
