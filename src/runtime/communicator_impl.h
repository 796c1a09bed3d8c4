// CommunicatorImpl: what a public Communicator refers to. See tersum/communicator.h for the
// contract.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/coalesced_call.h"
#include "runtime/lanes.h"
#include "runtime/member.h"
#include "runtime/progress.h"
#include "runtime/start_call.h"
#include "runtime/tuning/choice_cache.h"
#include "runtime/tuning/codec_cost.h"
#include "runtime/tuning/error_samples.h"
#include "runtime/tuning/path_choice.h"
#include "runtime/tuning/tuner.h"
#include "runtime/tuning/tuning_rules.h"
#include "runtime/tuning/tuning_table.h"
#include "tersum/communicator.h"

namespace tersum {

class CommunicatorImpl {
 public:
  // The member must be registered with the progress's node already. `admitted`: the group has a
  // token of its own, to be forgotten at the end.
  CommunicatorImpl(std::shared_ptr<Progress> progress, std::shared_ptr<Member> member,
                   CommunicatorOptions options, bool admitted);
  // Before the first call: where each rank's process is, which names what the group's tuning is
  // kept under (none: nothing is kept), and the user's rules.
  void set_tuning(std::vector<std::string> addresses, std::vector<TuningRule> rules);
  ~CommunicatorImpl();
  CommunicatorImpl(const CommunicatorImpl&) = delete;
  CommunicatorImpl& operator=(const CommunicatorImpl&) = delete;

  [[nodiscard]] const Member& member() const { return *member_; }
  [[nodiscard]] const CommunicatorOptions& options() const { return options_; }

  Status run(const CallArguments& arguments, const CallOptions& call_options);
  Work start(const CallArguments& arguments, const CallOptions& call_options);
  Work start_coalesced(std::span<const TensorRef> tensors, DataType type, ReduceOp op,
                       const CallOptions& call_options);
  // One end of a transfer; `data` is only read when this rank is the sender.
  Work start_transfer(void* data, size_t count, DataType type, bool sends, int peer, int tag,
                      const CallOptions& call_options);
  Result<Communicator> split(int color, int key);
  void abort(std::string_view reason);
  void close();
  [[nodiscard]] CommunicatorStats stats();
  Result<std::vector<std::byte>> save_flatten();
  Status load_flatten(std::span<const std::byte> saved);
  // What was known is forgotten.
  Status replace_flatten(std::span<const std::byte> saved);
  Status reset_flatten(std::optional<uint64_t> site);
  Result<std::vector<std::byte>> save_feedback();
  Status load_feedback(std::span<const std::byte> saved);
  Status reset_feedback();
  Status tune(bool fresh);
  // The same with another way to run its calls: on a virtual clock somebody else drives them.
  Status tune_by(bool fresh, const RunCall& run_call);
  [[nodiscard]] std::optional<LinkSpeed> link_speed();
  [[nodiscard]] const std::string& tuning_key() const { return tuning_key_; }
  [[nodiscard]] const std::vector<TuningRule>& rules() const { return rules_; }
  [[nodiscard]] Result<PathChoice> choose(const CallArguments& arguments,
                                          const CallOptions& call_options);

  // What tuning has measured; null before.
  [[nodiscard]] std::shared_ptr<const TuningTable> table() {
    const std::lock_guard lock(choice_mutex_);
    return table_;
  }

 private:
  // While one lives, a call is choosing by what its site knows of its channels, or has chosen and
  // has not started: change_flatten() refuses.
  struct EndSettling {
    void operator()(CommunicatorImpl* impl) const { impl->settling_.fetch_sub(1); }
  };
  using Settling = std::unique_ptr<CommunicatorImpl, EndSettling>;
  // A call with codec and plan settled.
  struct Settled {
    CallOptions options;
    std::shared_ptr<const TakenPath> path;  // what options.codec views; null: the caller's text
    Settling settling;                      // null: samples do not let it flatten
    bool teaches = false;                   // its sum, the site's channels

    void take(std::shared_ptr<const TakenPath> taken) {
      path = std::move(taken);
      options.codec = path->codec;
      options.plan = path->plan;
    }
  };
  // Tunes the group first where that is needed. `tensors`: of a coalesced call; `arguments` are
  // those of one of its buckets.
  Result<Settled> settle(const CallArguments& arguments, const CallOptions& call_options,
                         std::span<const TensorRef> tensors = {});
  // A call that leaves nothing open, or takes what such a call took before, where nothing is to be
  // tuned, sampled or learned first; nullopt otherwise. Waits for no other call's sample.
  // `context` needs no table.
  std::optional<Settled> settle_at_once(const PathContext& context, const CallArguments& arguments,
                                        const CallOptions& call_options);
  [[nodiscard]] Settling begin_settling();
  // The engine looks at what sites know. With choice_mutex_ held. kInvalidArgument: a call is in
  // flight that learns, or that is settled by what is known.
  Status between_calls(const std::function<Status(FlattenSites&)>& task);
  // Lets it change that, and forgets what samples said of it.
  Status change_flatten(const std::function<Status(FlattenSites&)>& change);
  Result<std::shared_ptr<Operation>> start_settled(const CallArguments& arguments, Settled& settled,
                                                   bool async);
  // Of a call that leaves nothing open.
  Status run_settled(const CallArguments& arguments, const CallOptions& call_options);
  RunCall blocking_calls();                                 // run_settled() of this group
  Status tune_once();                                       // unless it is tuned
  Status tune_locked(bool fresh, const RunCall& run_call);  // with tuning_mutex_ held
  // Has the group measure what codecs do to the call's values if that is due. Blocks then, as
  // tuning does, and lowers what is left of the call's time. Settles whether its sum teaches.
  Status sample_errors(const PathContext& context, const CallArguments& arguments,
                       std::span<const TensorRef> tensors, Settled& settled);
  [[nodiscard]] CodingPlace coding_place() const;
  // With choice_mutex_ held. The context views table_.
  [[nodiscard]] PathContext unsampled_context() const;
  [[nodiscard]] PathContext choice_context(const CallArguments& arguments,
                                           const CallOptions& call_options) const;
  // Without it: choosing may take a while, and other calls go on meanwhile.
  Result<std::shared_ptr<const TakenPath>> remembered_path(const CallArguments& arguments,
                                                           const CallOptions& call_options);
  // Puts in how long the call that was chosen is expected to take, where the table tells.
  void expect_time(const TuningTable* table, const CallArguments& arguments, PlanKind plan,
                   PathChoice& choice) const;
  [[nodiscard]] bool leaves_open(const CallOptions& call_options) const;
  // Why no call can start any more; ok before close().
  [[nodiscard]] Status left() const;

  std::shared_ptr<Progress> progress_;
  std::shared_ptr<Member> member_;
  CommunicatorOptions options_;
  bool admitted_;
  Lanes lanes_;
  const std::shared_ptr<ScratchPool> scratch_;
  std::mutex close_mutex_;
  bool closed_ = false;
  uint64_t splits_ = 0;                 // under member_->mutex
  std::vector<std::string> addresses_;  // by rank
  std::string tuning_key_;
  std::vector<TuningRule> rules_;
  std::mutex tuning_mutex_;    // one tuning at a time; held while it runs
  std::mutex sampling_mutex_;  // one call at a time asks for errors; held while it measures
  // Guards the three below. Never held while choosing; held over a round of the engine where what
  // sites have learned is saved or changed, so that no task of the engine may take it.
  std::mutex choice_mutex_;
  std::shared_ptr<const TuningTable> table_;
  ChoiceCache choices_;
  ErrorSamples samples_;
  std::atomic<int> settling_{0};  // grows under choice_mutex_ only
  std::mutex transfers_mutex_;
  // Transfers started so far, by (peer, tag, sends).
  std::map<std::tuple<int, int, bool>, uint32_t> transfers_;
};

// A call that failed before it began.
class FailedWork final : public WorkImpl {
 public:
  explicit FailedWork(Status status) : status_(std::move(status)) {}
  [[nodiscard]] bool done() const override { return true; }
  Status wait(int64_t /*timeout_ms*/) override { return status_; }

 private:
  Status status_;
};

// The error of calls on an empty communicator.
Status no_communicator();

// Communicator::create on a given engine: tests put several "processes" into one.
Result<Communicator> create_on(const std::shared_ptr<Progress>& progress, int rank, int size,
                               Store& store, const CommunicatorOptions& options,
                               std::string_view name);

}  // namespace tersum
