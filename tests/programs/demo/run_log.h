// The figures of a run, for programs to read: one record per step, one summary. Losses are hex
// floats, so that equality means equal bits. Bytes and nanoseconds. One thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>

#include "memory_judge.h"
#include "runtime/session.h"

namespace lowtide::demo {

struct StepRecord {
  int64_t index = 0;  // 1, 2, ...
  int64_t rows = 0;
  int64_t length = 0;
  float loss = 0;
  float eval_loss = -1;  // < 0 = no evaluation after this step
  int64_t cpu_ns = 0;    // of the whole process
  int64_t wall_ns = 0;
  Peaks judged;
  std::string gradients;  // digest; empty = not asked for
  StepReport session;     // index 0 = no session
};

class RunLog {
 public:
  explicit RunLog(const Options& options);
  ~RunLog();
  // Adds the step, and returns its JSON text in one line.
  std::string add(const StepRecord& record);
  void set(const std::string& key, const std::string& value);
  void set(const std::string& key, int64_t value);
  void set_session(const Session& session);
  // Written to a temporary and renamed. Throws InvalidInput when the path cannot be written.
  void write(const std::string& path) const;

 private:
  std::unique_ptr<nlohmann::json> json_;
};

// High-water mark of this process's resident memory.
[[nodiscard]] int64_t resident_high_water_bytes();

}  // namespace lowtide::demo
