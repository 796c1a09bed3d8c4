// CommunicatorImpl: what a public Communicator refers to. See tersum/communicator.h for the
// contract.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "runtime/member.h"
#include "runtime/progress.h"
#include "runtime/start_call.h"
#include "tersum/communicator.h"

namespace tersum {

class CommunicatorImpl {
 public:
  // The member must be registered with the progress's node already. `admitted`: the group has a
  // token of its own, to be forgotten at the end.
  CommunicatorImpl(std::shared_ptr<Progress> progress, std::shared_ptr<Member> member,
                   CommunicatorOptions options, bool admitted);
  ~CommunicatorImpl();
  CommunicatorImpl(const CommunicatorImpl&) = delete;
  CommunicatorImpl& operator=(const CommunicatorImpl&) = delete;

  [[nodiscard]] const Member& member() const { return *member_; }
  [[nodiscard]] const CommunicatorOptions& options() const { return options_; }

  Status run(const CallArguments& arguments, const CallOptions& call_options);
  Work start(const CallArguments& arguments, const CallOptions& call_options);
  Result<Communicator> split(int color, int key);
  void abort(std::string_view reason);
  void close();
  [[nodiscard]] CommunicatorStats stats();

 private:
  std::shared_ptr<Progress> progress_;
  std::shared_ptr<Member> member_;
  CommunicatorOptions options_;
  bool admitted_;
  std::mutex close_mutex_;
  bool closed_ = false;
  uint64_t splits_ = 0;  // under member_->mutex
};

// Communicator::create on a given engine: tests put several "processes" into one.
Result<Communicator> create_on(const std::shared_ptr<Progress>& progress, int rank, int size,
                               Store& store, const CommunicatorOptions& options,
                               std::string_view name);

}  // namespace tersum
