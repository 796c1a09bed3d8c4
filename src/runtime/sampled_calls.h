// SampledCalls: what settles the calls of a keyed member whose codec is "auto" within an error.
//
// "auto:LIST" likewise. As CommunicatorImpl::settle() does it, but without waiting and without a
// table of times, by which that takes the fastest codec: now and then a call first sums a sample
// exactly (tuning/error_samples.h), and goes on when that sum is there. It takes the codec of the
// fewest bits whose error stayed within max_rel_error in the site's recent samples, or "exact"
// where none did or nothing was to be learned. A site's calls are settled one after another in the
// order in which they start; while a sample is under way later ones wait in line, because it says
// what they take.
//
// Thread safety: any thread; never blocks but for a mutex. A sum of samples ends on the progress
// thread, which then codes some thousand values. Invariants: on_done is called exactly once;
// members of a group that start a site's calls in one order choose alike; no sample shows what
// channels were before they were changed from outside and is learned behind that.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/member.h"
#include "runtime/start_call.h"
#include "runtime/tuning/error_samples.h"
#include "tersum/options.h"
#include "tersum/status.h"

namespace tersum {

// What a site's last settled call took.
struct SampledChoice {
  std::string_view codec;  // for ever
  double rel_error = 0;    // that samples showed; 0 of "exact"
  uint64_t calls = 0;
};

class SampledCalls : public std::enable_shared_from_this<SampledCalls> {
 public:
  explicit SampledCalls(std::shared_ptr<Member> member) : member_(std::move(member)) {}

  // `arguments` name a site, `options` a codec that is_auto() and an error above 0. The strings and
  // arrays that options point to are not needed after the call.
  void start(const CallArguments& arguments, const CallOptions& options, int64_t default_timeout_ms,
             uint64_t key, OnDone on_done, void* context);

  // By site.
  [[nodiscard]] std::map<uint64_t, SampledChoice> choices() const;

  // Before what sites know of their channels is changed from outside: calls that go by it wait in
  // line until end_change(). False, and nothing has changed: one of them is being sampled for, or
  // has not started yet.
  [[nodiscard]] bool begin_change();
  // Behind it. `changed`: it was made, and what samples say of codecs that flatten is void.
  void end_change(bool changed);

 private:
  struct Call {
    CallArguments arguments;
    CallOptions options;
    int64_t deadline_ns = 0;
    uint64_t key = 0;
    OnDone on_done = nullptr;
    void* context = nullptr;
    bool may_flatten = false;
    bool teaches = false;  // its site's channels, also where it does not flatten
  };
  struct Site {
    ErrorSamples samples;
    std::deque<Call> waiting;
    bool is_settling = false;  // a call has left the line and has not started yet
    bool is_learning = false;  // and it goes by channels
    SampledChoice choice;
  };
  struct Sampling;

  // Settles the site's calls in line until one is sampled for.
  void go_on(uint64_t site);
  // The next call in line; nothing where none is, or where it has to wait until settled(): calls
  // start one after another, whichever threads bring them, as sites that learn go by their order.
  // `codec`: what it takes; empty: it is to be sampled for.
  std::optional<Call> take_next(uint64_t site, std::string_view& codec);
  Status sample(uint64_t site, const Call& call);
  // The same, once it is known what the site knows of its channels: on the progress thread.
  Status sample_behind(uint64_t site, const Call& call);
  Status sum_samples(uint64_t site, const Call& call, std::unique_ptr<const ChannelState> channels);
  // The call taken last has started, or has ended without.
  void settled(uint64_t site);
  // A sample that could not be taken ends its call.
  void give_up(uint64_t site, const Call& call, const Status& status);
  static void on_sampled(void* context, const Status& status);
  // Requires mutex_.
  std::string_view choose(Site& site, const Call& call) const;
  void run(const Call& call, std::string_view codec);
  // Of a call that has not started.
  void end(const Call& call, const Status& status);
  [[nodiscard]] int64_t left_ms(const Call& call) const;

  const std::shared_ptr<Member> member_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Site> sites_;
  int changes_ = 0;  // under way
};

}  // namespace tersum
