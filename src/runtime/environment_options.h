// What the environment says of a communicator's options, for runs whose program cannot be changed.
//
//   TERSUM_SLICE_BYTES   slice_bytes, 4096 to 2097152, window_bytes at most (agreed, as the option
//                        is)
//   TERSUM_STREAMS       tcp_streams, 1 to 16
//   TERSUM_TUNE_AT_START tune_at_start, 0 or 1 (agreed; of groups)
//
// Thread safety: any thread, as environment_variable() is.
#pragma once

#include <cstddef>

#include "tersum/options.h"
#include "tersum/status.h"
#include "wire/message.h"

namespace tersum {

inline constexpr size_t kSliceBytesMin = 4096;
inline constexpr size_t kSliceBytesMax = kPayloadBytesMax / 2;

// kInvalidArgument: a number that is none which a group or a world can run with.
Status check_options(const CommunicatorOptions& options);

// `options`, which are right, with what is set, and not empty, in place of their own.
// kInvalidArgument names the variable, its value and what it may be.
Result<CommunicatorOptions> with_environment(CommunicatorOptions options);

}  // namespace tersum
