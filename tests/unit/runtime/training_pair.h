// Runs the same training program plainly and under a session, and compares bits.
//
// A program is a factory: it seeds, builds its model and returns a function that does one whole
// step (forward, backward, optimizer) and returns the tensors to observe. Observed besides: the
// state of the default generator after each step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/session.h"

namespace lowtide::testing {

using StepFunction = std::function<std::vector<at::Tensor>(int step)>;
using Program = std::function<StepFunction()>;

// One line per step: a digest of every observed tensor and of the generator.
using Observed = std::vector<std::string>;

[[nodiscard]] std::string observe(const std::vector<at::Tensor>& tensors);

// Options that neither look for files nor write any.
[[nodiscard]] SessionOptions unstored(const std::string& budget);

// A directory for trace and plan files that is removed at the end.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

struct SessionRun {
  Observed observed;
  SessionStats stats;
  std::optional<Plan> plan;
  std::optional<Trace> trace;
  std::vector<StepReport> steps;
};

[[nodiscard]] Observed run_plain(const Program& program, int steps);
[[nodiscard]] SessionRun run_session(const Program& program, int steps, SessionOptions options);

// Requested bytes that torch holds through Lowtide's allocator.
[[nodiscard]] int64_t bytes_in_use();

// Smallest reachable budget of the program, bytes, from a probe without a limit.
[[nodiscard]] int64_t smallest_budget(const Program& program);

// While it lives every allocation first evicts whatever can be evicted, with probability `p`.
class Chaos {
 public:
  Chaos(double p, uint64_t seed);
  ~Chaos();
  Chaos(const Chaos&) = delete;
  Chaos& operator=(const Chaos&) = delete;
};

// Plain == session with budget none, at the smallest budget, and under chaos; each with both front
// ends. Returns an empty text, or what differs first.
[[nodiscard]] std::string differences(const Program& program, int steps = 9);

}  // namespace lowtide::testing
