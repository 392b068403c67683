#include <algorithm>
#include <cstdio>
#include <set>
#include <vector>

#include "base.h"

namespace cuda_double {
namespace {

std::atomic<CallCount*> newest_count{nullptr};
std::atomic<uint64_t> missing_total{0};

}  // namespace

CallCount::CallCount(const char* function) : function_(function) {
  settings();
  next_ = newest_count.load(std::memory_order_relaxed);
  while (!newest_count.compare_exchange_weak(next_, this, std::memory_order_release)) {
  }
}

uint64_t CallCount::of(const std::string& function) {
  for (auto* count = newest_count.load(std::memory_order_acquire); count; count = count->next_) {
    if (function == count->function_) return count->calls_.load(std::memory_order_relaxed);
  }
  return 0;
}

std::string CallCount::table() {
  std::vector<std::string> lines;
  for (auto* count = newest_count.load(std::memory_order_acquire); count; count = count->next_) {
    lines.push_back(std::string("  ") + count->function_ + " " +
                    std::to_string(count->calls_.load(std::memory_order_relaxed)) + "\n");
  }
  std::sort(lines.begin(), lines.end());
  std::string result;
  for (const auto& line : lines) result += line;
  return result;
}

void missing(const char* what) {
  missing_total.fetch_add(1, std::memory_order_relaxed);
  static std::mutex& mutex = *new std::mutex;
  static auto& said = *new std::set<std::string>;
  std::lock_guard<std::mutex> guard(mutex);
  if (!said.insert(what).second) return;
  std::fprintf(stderr, "CUDA double: %s is not modelled; the call fails as \"not supported\"\n",
               what);
}

uint64_t missing_calls() { return missing_total.load(std::memory_order_relaxed); }

cudaError_t missing_runtime(const char* what) {
  missing(what);
  return fail(cudaErrorNotSupported);
}

CUresult missing_driver(const char* what) {
  missing(what);
  return CUDA_ERROR_NOT_SUPPORTED;
}

int missing_runtime_stub(const char* function) { return missing_runtime(function); }
int missing_driver_stub(const char* function) { return missing_driver(function); }

}  // namespace cuda_double
