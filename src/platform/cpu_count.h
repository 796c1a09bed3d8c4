// Which CPUs ranks may run on, and how many.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tersum {

// Those on which this process (its first thread) may run, as hexadecimal digits without zeros at
// the end: bit b of digit d, both counted from 0, is CPU 4 d + b. Empty where the system does not
// say.
std::string own_cpus();

// The most digits that are taken for CPUs.
inline constexpr size_t kCpuDigitsMax = 512;
bool are_cpus(std::string_view digits);

// Adds those of `more` to `cpus`; both are CPUs, or empty.
void unite_cpus(std::string& cpus, std::string_view more);
int count_cpus(std::string_view cpus);

}  // namespace tersum
