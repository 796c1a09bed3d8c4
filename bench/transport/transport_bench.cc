// transport_bench: what a link carries between two processes, each with one thread: duplex
// streaming of messages and ping-pong latency, over every carrier, beside a bare-socket baseline of
// the same run.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/median.h"
#include "platform/cpu_relax.h"
#include "platform/stream_socket.h"
#include "platform/system_clock.h"
#include "transport/host_transport.h"

namespace tersum {
namespace {

constexpr GroupToken kToken = {std::byte{7}};

struct Options {
  size_t message_bytes = 64 * 1024;
  size_t total_bytes = size_t{1} << 30;
  size_t window_messages = 32;
  int rounds = 3;
};

// Streams both ways at once with a window of messages that the receiver's credits keep open; reads
// every received byte if asked to, as a decoder would.
class Streamer : public TransportSink {
 public:
  Streamer(Transport* transport, const Options& options, bool read_payload)
      : transport_(transport),
        options_(options),
        read_payload_(read_payload),
        credits_(options.window_messages) {}

  void on_link_up(Link& link) override { link_ = &link; }
  void on_connect_failed(ProcessId, const Status& reason) override {
    std::fprintf(stderr, "%s\n", reason.to_string().c_str());
    std::exit(1);
  }
  void on_link_down(Link&, const Status&) override { link_ = nullptr; }
  void on_message(Link& link, InMessage message) override {
    if (message.header.kind == MessageKind::kCredit) {
      credits_ += message.header.slice;
      return;
    }
    if (message.header.kind == MessageKind::kPing) {
      ++pings_;
      return;
    }
    if (read_payload_) sum(message.payload);
    ++received_;
    if (++uncredited_ == options_.window_messages / 4) {
      MessageHeader credit;
      credit.kind = MessageKind::kCredit;
      credit.slice = static_cast<uint32_t>(std::exchange(uncredited_, 0));
      link.send(credit, {});
    }
  }

  [[nodiscard]] Link* link() const { return link_; }

  void stream(size_t messages) {
    // Counted from the beginning: the peer may be a round ahead.
    target_ += messages;
    while (sent_ < target_ || received_ < target_) {
      bool moved = false;
      for (; sent_ < target_ && credits_ > 0 && link_->backlog_bytes() < (1 << 20); --credits_) {
        MessageHeader header;
        header.kind = MessageKind::kData;
        header.payload_bytes = static_cast<uint32_t>(options_.message_bytes);
        Result<SlotRef> slot = transport_->arena().reserve(options_.message_bytes);
        // A codec would write the slot here; the writing is not the link's.
        link_->send(header, slot.value());
        ++sent_;
        moved = true;
      }
      link_->flush();
      moved |= transport_->poll();
      if (!moved) yield_thread();
    }
  }

  void ping_pong(size_t count, bool first) {
    for (size_t i = 0; i < count; ++i) {
      if (first) send_ping();
      while (pings_ == i) transport_->poll();
      if (!first) send_ping();
    }
  }

 private:
  static MessageHeader ping_header() {
    MessageHeader header;
    header.kind = MessageKind::kPing;
    return header;
  }
  void send_ping() {
    link_->send(ping_header(), {});
    link_->flush();
  }
  void sum(std::span<const std::byte> payload) {
    uint64_t total = 0;
    for (size_t i = 0; i + 8 <= payload.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, payload.data() + i, sizeof word);
      total += word;
    }
    checksum_ = total;
  }

  Transport* transport_;
  Options options_;
  bool read_payload_;
  Link* link_ = nullptr;
  size_t sent_ = 0;
  size_t received_ = 0;
  size_t target_ = 0;
  size_t credits_;
  size_t uncredited_ = 0;
  size_t pings_ = 0;
  volatile uint64_t checksum_ = 0;
};

struct Line {
  std::string name;
  TransportKind kind;
  int streams;
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void run_rank(int rank, int channel, const Line& line, const Options& options) {
  const SystemClock clock;
  SystemRandom random;
  HostTransportOptions made;
  made.clock = &clock;
  made.random = &random;
  made.tcp_streams = line.streams;
  std::unique_ptr<Transport> transport = std::move(make_host_transport(made).value());
  if (!transport->listen({}).ok()) std::exit(1);
  transport->admit(1, kToken);
  Streamer streamer(transport.get(), options, line.kind == TransportKind::kSharedMemory);
  transport->set_sink(&streamer);
  char address[512] = "";
  if (rank == 0) {
    const std::string own = transport->address();
    if (write(channel, own.c_str(), own.size() + 1) < 0) std::exit(1);
  } else {
    if (read(channel, address, sizeof address) <= 0) std::exit(1);
    transport->connect(address, 1, kToken, line.kind, clock.now_ns() + 10'000'000'000);
  }
  while (streamer.link() == nullptr) transport->poll();
  const size_t messages = options.total_bytes / options.message_bytes;
  std::vector<double> rates;
  streamer.stream(messages / 8);
  const double cpu_start = cpu_seconds();
  for (int i = 0; i < options.rounds; ++i) {
    const int64_t start = clock.now_ns();
    streamer.stream(messages);
    rates.push_back(static_cast<double>(messages * options.message_bytes) /
                    static_cast<double>(clock.now_ns() - start));
  }
  // Of this process, per GB that it sends and receives: holds on a busy machine, too, as long as
  // waiting yields.
  const double cpu_per_gb = (cpu_seconds() - cpu_start) * 1e9 / options.rounds /
                            static_cast<double>(messages * options.message_bytes);
  constexpr size_t kPings = 2000;
  const int64_t start = clock.now_ns();
  streamer.ping_pong(kPings, rank == 0);
  const double round_trip_us = static_cast<double>(clock.now_ns() - start) / 1e3 / kPings;
  if (rank == 0) {
    std::printf(
        "%-12s %8zu B  %6.2f GB/s each way (of %d)  %.3f CPU s per GB  %7.1f us round trip\n",
        line.name.c_str(), options.message_bytes, median(rates), options.rounds, cpu_per_gb,
        round_trip_us);
    std::fflush(stdout);
  }
  transport->poll();
  streamer.link() != nullptr ? streamer.link()->close() : void();
}

void run_line(const Line& line, const Options& options) {
  int channel[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0) std::exit(1);
  const pid_t child = fork();
  if (child == 0) {
    run_rank(1, channel[1], line, options);
    _exit(0);
  }
  run_rank(0, channel[0], line, options);
  int status = 0;
  waitpid(child, &status, 0);
  close(channel[0]);
  close(channel[1]);
}

}  // namespace
}  // namespace tersum

int main(int argc, char** argv) {
  tersum::Options options;
  CLI::App app("Speed of links between two processes");
  app.add_option("--message-bytes", options.message_bytes, "payload of one message");
  app.add_option("--total-bytes", options.total_bytes, "bytes per round and direction");
  app.add_option("--window", options.window_messages, "messages in flight per direction");
  app.add_option("--rounds", options.rounds, "rounds; the median is shown");
  std::string only;
  app.add_option("--only", only, "tcp, tcp2, tcp4 or shm");
  CLI11_PARSE(app, argc, argv);
  using tersum::TransportKind;
  for (const tersum::Line& line :
       {tersum::Line{"tcp", TransportKind::kTcp, 1}, tersum::Line{"tcp2", TransportKind::kTcp, 2},
        tersum::Line{"tcp4", TransportKind::kTcp, 4},
        tersum::Line{"shm", TransportKind::kSharedMemory, 1}}) {
    if (only.empty() || only == line.name) tersum::run_line(line, options);
  }
  return 0;
}
