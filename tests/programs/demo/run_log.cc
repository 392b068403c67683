#include "run_log.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lowtide::demo {
namespace {

std::string hex_float(float value) {
  char buffer[40];
  std::snprintf(buffer, sizeof(buffer), "%a", static_cast<double>(value));
  return buffer;
}

nlohmann::json to_json(const StepReport& report) {
  return {{"phase", to_string(report.phase)},
          {"peak_requested_bytes", report.peak_requested_bytes},
          {"peak_rounded_bytes", report.peak_rounded_bytes},
          {"peak_reserved_bytes", report.peak_reserved_bytes},
          {"step_ns", report.step_ns},
          {"recompute_ns", report.recompute_ns},
          {"replayed_ops", report.replayed_ops},
          {"evictions", report.evictions},
          {"diverged", report.diverged}};
}

nlohmann::json to_json(const Plan& plan) {
  return {{"strategy", plan.strategy},
          {"trace_fingerprint", fingerprint_text(plan.trace_fingerprint)},
          {"budget_bytes", plan.budget_bytes},
          {"decisions", plan.decisions.size()},
          {"predicted_peak_requested_bytes", plan.predicted.peak_requested_bytes},
          {"predicted_peak_rounded_bytes", plan.predicted.peak_rounded_bytes},
          {"predicted_peak_reserved_bytes", plan.predicted.peak_reserved_bytes},
          {"predicted_step_ns", plan.predicted.step_ns},
          {"predicted_recompute_ns", plan.predicted.recompute_ns},
          {"predicted_memory_ns", plan.predicted.memory_ns},
          {"predicted_watch_ns", plan.predicted.watch_ns},
          {"predicted_replayed_ops", plan.predicted.replayed_ops},
          {"measured_peak_reserved_bytes", plan.measured.peak_reserved_bytes},
          {"compared", plan.measured.compared},
          {"mismatched", plan.measured.mismatched}};
}

}  // namespace

RunLog::RunLog(const Options& options) : json_(std::make_unique<nlohmann::json>()) {
  *json_ = {{"format", "lowtide-demo-run"},    {"version", 1},
            {"program", options.program},      {"lowtide", options.lowtide},
            {"budget", options.budget},        {"seed", options.seed},
            {"steps", nlohmann::json::array()}};
}

RunLog::~RunLog() = default;

std::string RunLog::add(const StepRecord& record) {
  nlohmann::json step = {{"step", record.index},
                         {"rows", record.rows},
                         {"length", record.length},
                         {"loss", hex_float(record.loss)},
                         {"cpu_ns", record.cpu_ns},
                         {"wall_ns", record.wall_ns},
                         {"begin_requested_bytes", record.judged.begin_requested_bytes},
                         {"peak_requested_bytes", record.judged.requested_bytes},
                         {"peak_rounded_bytes", record.judged.rounded_bytes},
                         {"peak_reserved_bytes", record.judged.reserved_bytes}};
  if (record.eval_loss >= 0) step["eval_loss"] = hex_float(record.eval_loss);
  if (!record.gradients.empty()) step["gradients"] = record.gradients;
  if (record.session.index > 0) step["session"] = to_json(record.session);
  (*json_)["steps"].push_back(step);
  return step.dump();
}

void RunLog::set(const std::string& key, const std::string& value) { (*json_)[key] = value; }
void RunLog::set(const std::string& key, int64_t value) { (*json_)[key] = value; }

void RunLog::set_session(const Session& session) {
  const SessionStats stats = session.stats();
  (*json_)["session"] = {{"steps", stats.steps},
                         {"phase", to_string(stats.phase)},
                         {"budget_bytes", stats.budget_bytes},
                         {"peak_requested_bytes", stats.peak_requested_bytes},
                         {"peak_rounded_bytes", stats.peak_rounded_bytes},
                         {"peak_reserved_bytes", stats.peak_reserved_bytes},
                         {"warmup_peak_reserved_bytes", stats.warmup_peak_reserved_bytes},
                         {"probe_peak_reserved_bytes", stats.probe_peak_reserved_bytes},
                         {"verify_peak_reserved_bytes", stats.verify_peak_reserved_bytes},
                         {"enforce_peak_reserved_bytes", stats.enforce_peak_reserved_bytes},
                         {"steps_over_budget", stats.steps_over_budget},
                         {"recompute_ns", stats.recompute_ns},
                         {"replayed_ops", stats.replayed_ops},
                         {"evictions", stats.evictions},
                         {"evicted_bytes", stats.evicted_bytes},
                         {"rescues", stats.rescues},
                         {"divergences", stats.divergences},
                         {"variants", stats.variants},
                         {"verified", stats.verified},
                         {"mismatched", stats.mismatched},
                         {"canaries", stats.canaries},
                         {"dropping_stopped", stats.dropping_stopped},
                         {"stop_reason", stats.stop_reason}};
  if (const auto plan = session.plan()) (*json_)["plan"] = to_json(*plan);
  if (const Trace* trace = session.trace()) {
    (*json_)["trace"] = {{"fingerprint", fingerprint_text(trace->fingerprint())},
                         {"ops", trace->ops.size()},
                         {"saves", trace->saves.size()},
                         {"step_ns", trace->step_ns},
                         {"peak_requested_bytes", trace->peaks.requested_bytes},
                         {"peak_reserved_bytes", trace->peaks.reserved_bytes}};
  }
}

void RunLog::write(const std::string& path) const {
  const std::string half = path + ".part";
  std::error_code error;
  {
    std::ofstream file(half, std::ios::binary);
    file << json_->dump(1) << '\n';
    if (!file.flush()) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(half, path, error);
  if (error) {
    throw InvalidInput("--json: cannot write '" + path + "'; choose a writable folder with free " +
                       "space");
  }
}

int64_t resident_high_water_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return -1;
}

}  // namespace lowtide::demo
