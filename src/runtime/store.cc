#include "runtime/store.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "core/error.h"
#include "core/trace_file.h"

namespace lowtide::runtime {
namespace fs = std::filesystem;

fs::path Store::trace_path(uint64_t fingerprint) const {
  return directory_ / (name_ + "-" + fingerprint_text(fingerprint) + ".trace.json");
}

fs::path Store::plan_path(uint64_t fingerprint) const {
  return directory_ / (name_ + "-" + fingerprint_text(fingerprint) + ".plan.json");
}

void Store::save(const Trace& trace) const {
  std::error_code ignored;  // the writer names the problem better
  fs::create_directories(directory_, ignored);
  write_trace(trace, trace_path(trace.fingerprint()));
}

void Store::save(const Plan& plan) const {
  std::error_code ignored;
  fs::create_directories(directory_, ignored);
  write_plan(plan, plan_path(plan.trace_fingerprint));
}

std::optional<Trace> Store::find_trace(const TraceSettings& settings) const {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(name_ + "-") && file.ends_with(".trace.json")) {
      files.emplace_back(entry.last_write_time(error), entry.path());
    }
  }
  std::sort(files.rbegin(), files.rend());
  for (const auto& [time, path] : files) {
    try {
      Trace trace = read_trace(path);
      if (settings_difference(trace.settings, settings).empty()) {
        return trace;
      }
    } catch (const Error& problem) {
      std::fprintf(stderr, "lowtide: ignoring %s: %s\n", path.c_str(), problem.message().c_str());
    }
  }
  return std::nullopt;
}

std::optional<Plan> Store::find_plan(uint64_t fingerprint) const {
  const fs::path path = plan_path(fingerprint);
  std::error_code error;
  if (!fs::exists(path, error)) {
    return std::nullopt;
  }
  try {
    return read_plan(path);
  } catch (const Error& problem) {
    std::fprintf(stderr, "lowtide: ignoring %s: %s\n", path.c_str(), problem.message().c_str());
    return std::nullopt;
  }
}

std::string settings_difference(const TraceSettings& stored, const TraceSettings& present) {
  std::string text;
  const auto differ = [&text](const std::string& what, const std::string& then,
                              const std::string& now) {
    if (then != now) {
      text += (text.empty() ? "" : "; ") + what + " was " + then + ", is " + now;
    }
  };
  differ("torch", stored.torch_version, present.torch_version);
  differ("device", stored.device, present.device);
  differ("intra-op threads", std::to_string(stored.intra_op_threads),
         std::to_string(present.intra_op_threads));
  differ("lowtide", stored.lowtide_version, present.lowtide_version);
  return text;
}

}  // namespace lowtide::runtime
