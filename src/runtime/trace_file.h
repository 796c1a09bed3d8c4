// TraceFile: a recorder and the file that it ends in.
//
// The path may hold %r (this process's rank) and %p (its process id). If it holds neither and the
// group has several ranks, ".r<rank>" goes in before the extension, so that the processes of one
// run never write to one file.
//
// Thread safety: none. Invariant: the file appears whole or not at all, and write() again replaces
// it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "runtime/trace_recorder.h"
#include "tersum/status.h"

namespace tersum {

std::string expand_trace_path(std::string_view path, int rank, int size, int64_t process);

class TraceFile {
 public:
  // kUnavailable when no file can be made there: said at once, not after the run.
  static Result<std::unique_ptr<TraceFile>> open(std::string_view path, int rank, int size,
                                                 size_t events_max, const Clock& clock);

  [[nodiscard]] TraceRecorder& recorder() { return recorder_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  Status write() const;

 private:
  TraceFile(std::string path, int rank, size_t events_max, const Clock& clock)
      : path_(std::move(path)), rank_(rank), recorder_(clock, events_max) {}

  const std::string path_;
  const int rank_;
  TraceRecorder recorder_;
};

}  // namespace tersum
