// Small files that are written once and read whole, on local and network file systems.
//
// Thread safety: any thread or process, concurrently. All functions return an errno, 0 for success.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tersum {

// Makes every directory that `path` names up to its last '/', as far as absent.
int make_directories_above(const std::string& path);

// 0 if files can be made in `directory`.
int check_writable(const std::string& directory);

// ENOENT: no such file. EFBIG: more than `bytes_max`.
int read_small_file(const std::string& path, size_t bytes_max, std::string* contents);

// Makes the file `path` with these contents, all at once: readers see nothing or everything. EEXIST
// if there is one, whoever made it first. `draft_directory` is on the same file system; nothing
// stays in it. Where a file system has no hard links, two makers in the same instant may both
// succeed, and the later one's contents stay.
int create_small_file(const std::string& path, std::string_view contents,
                      const std::string& draft_directory);

// Like create_small_file, but takes the place of a file of that name.
int replace_small_file(const std::string& path, std::string_view contents,
                       const std::string& draft_directory);

}  // namespace tersum
