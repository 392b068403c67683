// A stretch of work that Lowtide does only where there is room for it: an allocation that fails in
// it is no shortage of the program's.
#pragma once

namespace lowtide::runtime {

class OptionalAllocations {
 public:
  OptionalAllocations() noexcept { ++depth_; }
  ~OptionalAllocations() { --depth_; }
  OptionalAllocations(const OptionalAllocations&) = delete;
  OptionalAllocations& operator=(const OptionalAllocations&) = delete;
  // On this thread.
  [[nodiscard]] static bool active() noexcept { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace lowtide::runtime
