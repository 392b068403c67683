// Trace and plan files of a session: `<directory>/<name>-<fingerprint>.{trace,plan}.json`.
//
// A later run finds the newest trace that was measured under the same settings. Files that cannot
// be read are named on stderr and passed over: a stale file must not stop a training job.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/plan.h"
#include "core/trace.h"

namespace lowtide::runtime {

class Store {
 public:
  Store(std::filesystem::path directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}

  [[nodiscard]] std::filesystem::path trace_path(uint64_t fingerprint) const;
  [[nodiscard]] std::filesystem::path plan_path(uint64_t fingerprint) const;
  // Both create the directory; they throw FileError.
  void save(const Trace& trace) const;
  void save(const Plan& plan) const;
  // Newest trace of this name whose settings equal `settings`; nullopt = none.
  [[nodiscard]] std::optional<Trace> find_trace(const TraceSettings& settings) const;
  [[nodiscard]] std::optional<Plan> find_plan(uint64_t fingerprint) const;

 private:
  std::filesystem::path directory_;
  std::string name_;
};

// What differs between the settings a trace was measured under and the present ones, in words;
// empty = nothing that changes numbers or bytes.
[[nodiscard]] std::string settings_difference(const TraceSettings& stored,
                                              const TraceSettings& present);

}  // namespace lowtide::runtime
