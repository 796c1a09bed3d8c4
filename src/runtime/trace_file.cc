#include "runtime/trace_file.h"

#include "platform/host_identity.h"
#include "platform/output_file.h"
#include "platform/small_file.h"
#include "platform/system_clock.h"
#include "platform/system_error.h"
#include "runtime/trace_json.h"

namespace tersum {

std::string expand_trace_path(std::string_view path, int rank, int size, int64_t process) {
  std::string text;
  bool distinct = size == 1;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool rank_here = path.substr(i).starts_with("%r");
    if (!rank_here && !path.substr(i).starts_with("%p")) {
      text += path[i];
      continue;
    }
    text += std::to_string(rank_here ? rank : process);
    distinct = true;
    ++i;
  }
  if (distinct) return text;
  const size_t slash = text.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  size_t dot = text.rfind('.');
  if (dot == std::string::npos || dot <= name) dot = text.size();
  return text.insert(dot, ".r" + std::to_string(rank));
}

Result<std::unique_ptr<TraceFile>> TraceFile::open(std::string_view path, int rank, int size,
                                                   size_t events_max, const Clock& clock) {
  std::string expanded = expand_trace_path(path, rank, size, process_number());
  const size_t slash = expanded.rfind('/');
  const std::string directory =
      slash == std::string::npos ? "." : expanded.substr(0, slash == 0 ? 1 : slash);
  int error = make_directories_above(expanded);
  if (error == 0) error = check_writable(directory);
  if (error != 0) {
    return system_error(StatusCode::kUnavailable,
                        "no trace can be written to '" + expanded +
                            "'; set TERSUM_TRACE to a file in a directory that is writable",
                        error);
  }
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(expanded), rank, events_max, clock));
}

Status TraceFile::write() const {
  TraceOrigin origin;
  origin.process = process_number();
  origin.rank = rank_;
  origin.host = host_name();
  origin.boot = boot_id();
  origin.monotonic_ns = recorder_.now_ns();
  origin.wall_ns = wall_clock_ns();
  OutputFile file;
  int error = file.open(path_);
  if (error == 0) {
    write_trace_json(recorder_, origin, [&](std::string_view text) {
      if (error == 0) error = file.append(text);
    });
  }
  if (error == 0) error = file.finish();
  if (error == 0) return {};
  return system_error(StatusCode::kSystem, "the trace was not written to '" + path_ + "'", error);
}

}  // namespace tersum
