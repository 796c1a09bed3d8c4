#include "platform/cpu_count.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

namespace tersum {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr size_t kCpusPerDigit = 4;

unsigned value_of(char digit) { return static_cast<unsigned>(kDigits.find(digit)); }

}  // namespace

std::string own_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  std::string digits;
  if (sched_getaffinity(getpid(), sizeof cpus, &cpus) != 0) return digits;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &cpus)) continue;
    digits.resize(cpu / kCpusPerDigit + 1, kDigits[0]);
    digits.back() = kDigits[value_of(digits.back()) | 1U << cpu % kCpusPerDigit];
  }
  return digits;
}

bool are_cpus(std::string_view digits) {
  return !digits.empty() && digits.size() <= kCpuDigitsMax && digits.back() != kDigits[0] &&
         digits.find_first_not_of(kDigits) == std::string_view::npos;
}

void unite_cpus(std::string& cpus, std::string_view more) {
  cpus.resize(std::max(cpus.size(), more.size()), kDigits[0]);
  for (size_t d = 0; d < more.size(); ++d) {
    cpus[d] = kDigits[value_of(cpus[d]) | value_of(more[d])];
  }
}

int count_cpus(std::string_view cpus) {
  int count = 0;
  for (const char digit : cpus) count += std::popcount(value_of(digit));
  return count;
}

}  // namespace tersum
