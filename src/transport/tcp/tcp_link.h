// TcpLink: a link over one or several TCP connections; each message travels whole on one of them.
//
// Thread safety: none (progress role). Invariants: those of Link. Control messages take stream 0,
// data the stream with the least queued. When one connection ends, the others are read to their
// ends first (a short grace), so that what the peer sent before it left is not lost.
#pragma once

#include <memory>
#include <vector>

#include "transport/host_link.h"
#include "transport/tcp/tcp_stream.h"

namespace tersum {

class TcpLink final : public HostLink, private StreamSink {
 public:
  TcpLink(const LinkContext& context, ProcessId peer, std::vector<UniqueFd> streams);

  [[nodiscard]] ProcessId peer() const override { return peer_; }
  [[nodiscard]] std::string_view transport() const override { return "tcp"; }
  [[nodiscard]] bool gathers() const override { return loopback_; }
  void send(const MessageHeader& header, const SlotRef& payload) override;
  [[nodiscard]] bool borrows() const override { return true; }
  void send_lent(const MessageHeader& header, const SlotRef& payload, SourcePieces lent) override;
  void settle() override;
  void drop_landings() override;
  void flush() override;
  bool poll() override;
  [[nodiscard]] size_t backlog_bytes() const override;
  [[nodiscard]] bool down() const override { return down_; }
  void close() override;

  bool prepare_sleep() override;
  void finish_sleep() override {}
  [[nodiscard]] int64_t next_deadline_ns() const override { return deadline_ns_; }
  [[nodiscard]] bool blocked() const override;
  [[nodiscard]] bool needs_poller() const override { return !retired(); }
  [[nodiscard]] bool retired() const override;

  [[nodiscard]] size_t stream_count() const { return streams_.size(); }

 private:
  bool on_stream_message(InMessage message) override;
  void find_stream_landing(const MessageHeader& header, Landing& landing) override;
  TcpStream& least_loaded();
  bool flush_streams();
  void check_ends();
  void go_down(const Status& reason);
  void poll_lingering();

  LinkContext context_;
  ProcessId peer_;
  const bool loopback_;
  std::vector<std::unique_ptr<TcpStream>> streams_;
  size_t next_stream_ = 0;
  bool down_ = false;
  bool peer_left_ = false;
  int64_t deadline_ns_ = std::numeric_limits<int64_t>::max();  // of an ending or lingering link
};

}  // namespace tersum
