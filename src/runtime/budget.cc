#include "runtime/budget.h"

#include <fstream>

#include "core/bytes.h"
#include "core/error.h"
#include "hooks/training_memory.h"

namespace lowtide::runtime {
namespace {

int64_t read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    if (word == "MemAvailable:") {
      int64_t kib = 0;
      file >> kib;
      return kib * 1024;
    }
  }
  return -1;
}

}  // namespace

int64_t budget_from_text(const std::string& text) {
  if (text == "none") {
    return hooks::TrainingMemory::kNoLimit;
  }
  if (text != "auto") {
    const int64_t bytes = parse_bytes(text, "budget");
    if (bytes == 0) {
      throw InvalidInput(
          "a budget of 0 bytes cannot hold anything. Fix: give e.g. 300MiB, or none");
    }
    return bytes;
  }
  const int64_t available = available_memory();
  int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  if (limit > 0) {
    limit -= std::max<int64_t>(0, read_number("/sys/fs/cgroup/memory.current"));
  }
  if (limit > 0 && (available < 0 || limit < available)) {
    return limit;
  }
  if (available < 0) {
    throw InvalidInput(
        "budget auto: neither a cgroup limit nor /proc/meminfo can be read. Fix: give "
        "the budget in bytes, e.g. 8GiB");
  }
  return available;
}

int64_t limit_within(int64_t budget_bytes, int64_t reserve_bytes) {
  if (budget_bytes == hooks::TrainingMemory::kNoLimit) {
    return budget_bytes;
  }
  if (reserve_bytes >= budget_bytes) {
    throw InvalidInput("the reserve of " + format_bytes(reserve_bytes) +
                       " leaves nothing of the budget of " + format_bytes(budget_bytes) +
                       ". Fix: a smaller reserve or a larger budget");
  }
  return budget_bytes - reserve_bytes;
}

}  // namespace lowtide::runtime
