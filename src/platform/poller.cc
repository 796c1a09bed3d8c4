#include "platform/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "base/check.h"
#include "platform/system_error.h"

namespace tersum {
namespace {

constexpr int kEventsMax = 64;

int wait_precisely(int epoll, epoll_event* events, int64_t timeout_ns) {
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                         static_cast<long>(timeout_ns % 1'000'000'000)};
  return epoll_pwait2(epoll, events, kEventsMax, &timeout, nullptr);
}

int wait_by_milliseconds(int epoll, epoll_event* events, int64_t timeout_ns) {
  // Rounded up: waking before the deadline would only spin.
  const int64_t timeout_ms = std::min<int64_t>((timeout_ns + 999'999) / 1'000'000, 1'000'000);
  return epoll_wait(epoll, events, kEventsMax, static_cast<int>(timeout_ms));
}

}  // namespace

Result<std::unique_ptr<Poller>> Poller::create() {
  std::unique_ptr<Poller> poller(new Poller());
  poller->epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!poller->epoll_) return system_error(StatusCode::kSystem, "cannot make a poller", errno);
  poller->wake_event_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!poller->wake_event_) return system_error(StatusCode::kSystem, "cannot make an event", errno);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;
  if (epoll_ctl(poller->epoll_.get(), EPOLL_CTL_ADD, poller->wake_event_.get(), &event) != 0) {
    return system_error(StatusCode::kSystem, "cannot poll an event", errno);
  }
  return poller;
}

Status Poller::add(int fd, PollFlags* flags, bool input_only) {
  TERSUM_CHECK(flags != nullptr);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  if (!input_only) event.events |= EPOLLOUT;
  event.data.ptr = flags;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return system_error(StatusCode::kSystem, "cannot poll a descriptor", errno);
  }
  return {};
}

void Poller::remove(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

int Poller::collect(int64_t timeout_ns) {
  std::array<epoll_event, kEventsMax> events;
  int count = -1;
  if (timeout_ns <= 0) {
    count = epoll_wait(epoll_.get(), events.data(), kEventsMax, 0);
  } else if (precise_timeouts_) {
    count = wait_precisely(epoll_.get(), events.data(), timeout_ns);
    // Kernels before 5.11 and some sandboxes lack the call.
    if (count < 0 && errno != EINTR) precise_timeouts_ = false;
  }
  if (count < 0 && timeout_ns > 0 && !precise_timeouts_) {
    count = wait_by_milliseconds(epoll_.get(), events.data(), timeout_ns);
  }
  for (int i = 0; i < count; ++i) {
    auto* flags = static_cast<PollFlags*>(events[static_cast<size_t>(i)].data.ptr);
    const uint32_t bits = events[static_cast<size_t>(i)].events;
    if (flags == nullptr) {
      uint64_t wakes = 0;
      [[maybe_unused]] const ssize_t got = read(wake_event_.get(), &wakes, sizeof wakes);
      continue;
    }
    if ((bits & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) flags->readable = true;
    if ((bits & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) flags->writable = true;
    if ((bits & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) flags->half_closed = true;
    if ((bits & (EPOLLHUP | EPOLLERR)) != 0) flags->hung_up = true;
  }
  return std::max(count, 0);
}

int Poller::dispatch() { return collect(0); }

void Poller::wait(int64_t timeout_ns) {
  // Announce, then look: with the opposite order in wake() one of the two always sees the other.
  sleeping_.store(true, std::memory_order_seq_cst);
  if (!wake_pending_.load(std::memory_order_seq_cst)) collect(timeout_ns);
  sleeping_.store(false, std::memory_order_seq_cst);
  // What the waker did before wake() is visible from here on.
  wake_pending_.exchange(false, std::memory_order_acq_rel);
}

void Poller::wake() {
  wake_pending_.store(true, std::memory_order_seq_cst);
  if (!sleeping_.load(std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  // EAGAIN means that the counter is full of earlier wake-ups, which serve as well.
  [[maybe_unused]] const ssize_t wrote = write(wake_event_.get(), &one, sizeof one);
}

}  // namespace tersum
