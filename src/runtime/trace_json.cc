#include "runtime/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tersum {
namespace {

const char* phase_name(FlowPhase phase) {
  switch (phase) {
    case FlowPhase::kReduce:
      return "reduce";
    case FlowPhase::kGather:
      return "gather";
    case FlowPhase::kScaleReduce:
      return "scale_reduce";
    case FlowPhase::kScaleGather:
      return "scale_gather";
  }
  return "unknown";
}

constexpr size_t kPieceBytes = 64 * 1024;

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string_view span_name(TraceKind kind) {
  switch (kind) {
    case TraceKind::kEncode:
      return "encode";
    case TraceKind::kCombine:
      return "combine";
    case TraceKind::kDecode:
      return "decode";
    case TraceKind::kArrived:
      return "arrived";
    case TraceKind::kReady:
      return "ready";
    default:
      return "sleep";
  }
}

// What names one message of one sender, whatever the link did with it.
struct MessageKey {
  uint64_t group, call;
  uint32_t chunk, slice;
  uint16_t rank, peer;
  FlowPhase phase;
  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

MessageKey key_of(const TraceEvent& event) {
  return {event.group, event.call, event.chunk, event.slice, event.rank, event.peer, event.phase};
}

struct HashMessage {
  size_t operator()(const MessageKey& key) const {
    uint64_t hash = key.group;
    for (const uint64_t word :
         {key.call, uint64_t{key.chunk} << 32 | key.slice,
          uint64_t{key.rank} << 32 | uint64_t{key.peer} << 8 | static_cast<uint64_t>(key.phase)}) {
      hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

class TraceWriter {
 public:
  TraceWriter(const TraceRecorder& recorder, const TraceOrigin& origin,
              const std::function<void(std::string_view)>& sink)
      : recorder_(recorder), origin_(origin), sink_(sink) {}

  void write() {
    find_tracks();
    text_ += "[\n";
    write_metadata();
    for (size_t i = 0; i < recorder_.size(); ++i) {
      const TraceEvent& event = recorder_.at(i);
      if (event.kind == TraceKind::kCall) {
        write_call(event);
      } else if (event.kind == TraceKind::kQueued) {
        queued_[key_of(event)] = event.begin_ns;
      } else if (event.kind == TraceKind::kTaken) {
        write_wire(event);
      } else {
        write_on_track(event);
      }
      flush(kPieceBytes);
    }
    text_ += "\n]\n";
    flush(0);
  }

 private:
  void find_tracks() {
    for (size_t i = 0; i < recorder_.size(); ++i) {
      const TraceEvent& event = recorder_.at(i);
      if (event.kind == TraceKind::kSleep) continue;
      const std::pair<uint64_t, uint16_t> track{event.group, event.rank};
      if (std::find(tracks_.begin(), tracks_.end(), track) == tracks_.end()) {
        tracks_.push_back(track);
      }
    }
  }

  // Track 0 is the engine's own.
  size_t track_of(const TraceEvent& event) const {
    if (event.kind == TraceKind::kSleep) return 0;
    const std::pair<uint64_t, uint16_t> track{event.group, event.rank};
    return static_cast<size_t>(std::find(tracks_.begin(), tracks_.end(), track) - tracks_.begin()) +
           1;
  }

  void write_metadata() {
    add(R"-({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"tersum rank {} ({})"}}}})-",
        origin_.process, origin_.rank, escape(origin_.host));
    add(R"({{"name":"process_sort_index","ph":"M","pid":{},"args":{{"sort_index":{}}}}})",
        origin_.process, origin_.rank);
    add(R"({{"name":"tersum_clock","ph":"M","pid":{},"args":{{"boot":"{}","monotonic_ns":{},)"
        R"("wall_ns":{},"dropped":{}}}}})",
        origin_.process, escape(origin_.boot), origin_.monotonic_ns, origin_.wall_ns,
        recorder_.dropped());
    add(R"({{"name":"thread_name","ph":"M","pid":{},"tid":0,"args":{{"name":"engine"}}}})",
        origin_.process);
    for (size_t i = 0; i < tracks_.size(); ++i) {
      add(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":)"
          R"("rank {} of group {:08x}"}}}})",
          origin_.process, i + 1, tracks_[i].second, tracks_[i].first >> 32);
    }
  }

  // Calls overlap, so they are asynchronous spans.
  void write_call(const TraceEvent& event) {
    const std::string codec = event.codec == nullptr ? "" : event.codec->spec().to_string();
    const std::string id = fmt::format("call {:x}.{}.{}", event.group, event.call, event.rank);
    const auto name = collective_name(event.collective);
    const auto tid = track_of(event);
    add(R"({{"name":"{}","cat":"call","ph":"b","id":"{}","ts":{},"pid":{},"tid":{},"args":)"
        R"({{"call":{},"codec":"{}","bytes":{},"status":"{}"}}}})",
        name, id, micros(event.begin_ns), origin_.process, tid, event.call, codec, event.bytes,
        event.status == StatusCode::kOk ? "ok" : status_code_name(event.status));
    add(R"({{"name":"{}","cat":"call","ph":"e","id":"{}","ts":{},"pid":{},"tid":{}}})", name, id,
        micros(event.end_ns), origin_.process, tid);
  }

  // From when the slice was queued (if that is still in the ring) to when the carrier had it all.
  void write_wire(const TraceEvent& event) {
    const auto queued = queued_.find(key_of(event));
    if (queued == queued_.end()) return;
    const int64_t begin_ns = queued->second;
    queued_.erase(queued);
    const std::string id =
        fmt::format("wire {:x}.{}.{}.{}.{}.{}.{}", event.group, event.call, event.rank, event.peer,
                    static_cast<int>(event.phase), event.chunk, event.slice);
    const auto tid = track_of(event);
    add(R"({{"name":"wire","cat":"wire","ph":"b","id":"{}","ts":{},"pid":{},"tid":{},"args":{}}})",
        id, micros(begin_ns), origin_.process, tid, arguments(event));
    add(R"({{"name":"wire","cat":"wire","ph":"e","id":"{}","ts":{},"pid":{},"tid":{}}})", id,
        micros(event.end_ns), origin_.process, tid);
  }

  // Codec work and sleeps are done by one thread at a time: plain spans. The rest are instants.
  void write_on_track(const TraceEvent& event) {
    const bool instant = event.kind == TraceKind::kArrived || event.kind == TraceKind::kReady;
    const bool sleep = event.kind == TraceKind::kSleep;
    const std::string shape =
        instant ? R"("ph":"i","s":"t")"
                : fmt::format(R"("ph":"X","dur":{})", micros(event.end_ns - event.begin_ns));
    add(R"({{"name":"{}","cat":"{}",{},"ts":{},"pid":{},"tid":{},"args":{}}})",
        span_name(event.kind), instant ? "wire" : (sleep ? "wait" : "codec"), shape,
        micros(event.begin_ns), origin_.process, track_of(event),
        sleep ? std::string("{}") : arguments(event));
  }

  static std::string arguments(const TraceEvent& event) {
    std::string text = fmt::format(
        R"({{"group":"{:x}","call":{},"rank":{},"chunk":{},"slice":{},"bytes":{},"phase":"{}")",
        event.group, event.call, event.rank, event.chunk, event.slice, event.bytes,
        phase_name(event.phase));
    if (event.has_peer) text += fmt::format(R"(,"peer":{})", event.peer);
    if (event.codec != nullptr) {
      text += fmt::format(R"(,"codec":"{}")", event.codec->spec().to_string());
    }
    return text + "}";
  }

  static std::string micros(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (written_++ > 0) text_ += ",\n";
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  void flush(size_t above) {
    if (text_.size() <= above) return;
    sink_(text_);
    text_.clear();
  }

  const TraceRecorder& recorder_;
  const TraceOrigin& origin_;
  const std::function<void(std::string_view)>& sink_;
  std::vector<std::pair<uint64_t, uint16_t>> tracks_;  // (group, rank); a process has a few
  std::unordered_map<MessageKey, int64_t, HashMessage> queued_;
  std::string text_;
  size_t written_ = 0;
};

}  // namespace

void write_trace_json(const TraceRecorder& recorder, const TraceOrigin& origin,
                      const std::function<void(std::string_view)>& sink) {
  TraceWriter(recorder, origin, sink).write();
}

}  // namespace tersum
