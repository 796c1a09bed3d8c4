// copy_bytes: a copy of payloads, whose ends lie in their pages as chance has it.
//
// Thread safety: pure function.
#pragma once

#include <cstddef>

namespace tersum {

// As memcpy(), of any number of bytes, which may not overlap; `to` and `from` may be null where
// there are none.
//
// Processors of AMD's Zen 3 and 4 copy 2 to 3 GB/s by `rep movsb`, in place of 35 to 48, to where
// the page offset is 1 to 31 bytes beyond that of what is read (0 as well, Zen 4:
// https://sourceware.org/bugzilla/show_bug.cgi?id=30994), and the C library takes that instruction
// from a few kilobytes on. So such copies go in parts that are shorter. Where they leave the caches
// parts are slower than the instruction at its best by up to a fifth, so memory of ours had better
// begin elsewhere in its pages than arrays do: with one, or 16 bytes behind it (malloc, NumPy).
void copy_bytes(void* to, const void* from, size_t bytes);

}  // namespace tersum
