// Tuning tables kept between runs: one small file per group of hosts in the user's cache folder.
//
// $TERSUM_CACHE_DIR, else $XDG_CACHE_HOME/tersum, else $HOME/.cache/tersum. TERSUM_CACHE_DIR set to
// nothing turns the cache off.
//
// Thread safety: any thread or process. A cache that cannot be read or written is no error: the
// group is measured again.
#pragma once

#include <string>
#include <string_view>

#include "runtime/tuning/tuning_table.h"

namespace tersum {

// Empty when there is none for this key, or it is damaged. The file's first line is the key itself,
// so a table of other hosts or another version is never taken, whatever its file is called.
TuningTable read_tuning_cache(std::string_view key);
void write_tuning_cache(std::string_view key, const TuningTable& table);

}  // namespace tersum
