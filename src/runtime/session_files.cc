// What a session finds written down: traces and plans of earlier runs, a plan given by hand.
#include <ATen/Parallel.h>

#include <filesystem>
#include <utility>

#include "core/bytes.h"
#include "core/error.h"
#include "core/trace_file.h"
#include "core/version.h"
#include "runtime/budget.h"
#include "runtime/session_impl.h"

namespace lowtide::runtime {

TraceSettings SessionImpl::settings() const {
  TraceSettings settings;
  settings.name = options_.name;
  settings.device = memory_->device();
  settings.torch_version = LOWTIDE_TORCH_VERSION;
  settings.lowtide_version = kVersion;
  settings.intra_op_threads = at::get_num_threads();
  settings.clock = runtime_->clock == profiler::ClockKind::thread_cpu ? "thread_cpu" : "wall";
  return settings;
}

void SessionImpl::load_stored() {
  std::optional<Trace> trace = store_.find_trace(settings());
  if (!trace.has_value()) {
    return;
  }
  auto variant = std::make_unique<Variant>(std::move(*trace), *memory_, options_.strategy);
  std::optional<Plan> plan = store_.find_plan(variant->fingerprint());
  const bool verified = plan.has_value() && plan->measured.verified;
  if (verified && plan->budget_bytes == budget_ && plan->account.reserve_bytes == reserve_ &&
      options_.strategy.empty()) {
    variant->use_plan(*plan);
  }
  variants_.push_back(std::move(variant));
  from_file_ = true;
  if (verified) {
    mark_trusted();
    // Verification is of the trace: it holds for the plan of any budget.
    inherited_ = plan->measured;
  }
  phase_ = verified ? SessionPhase::enforce : SessionPhase::verify;
  say("found trace " + store_.trace_path(current().fingerprint()).string());
  make_plan();
}

void SessionImpl::load_given_plan() {
  Plan plan = read_plan(options_.plan_file);
  std::string trace_file = options_.plan_file;
  const std::string ending = ".plan.json";
  if (trace_file.ends_with(ending)) {
    trace_file.replace(trace_file.size() - ending.size(), ending.size(), ".trace.json");
  }
  if (trace_file == options_.plan_file || !std::filesystem::exists(trace_file)) {
    trace_file = store_.trace_path(plan.trace_fingerprint).string();
  }
  Trace trace = read_trace(trace_file);
  const std::string difference = settings_difference(trace.settings, settings());
  if (!difference.empty()) {
    throw Mismatch("the plan " + options_.plan_file + " was made under other settings: " +
                   difference + ". Fix: measure again under the present ones");
  }
  auto variant = std::make_unique<Variant>(std::move(trace), *memory_, options_.strategy);
  const bool verified = plan.measured.verified;
  if (options_.budget == "auto" || options_.budget == "none") {
    budget_ = plan.budget_bytes;
    limit_ = limit_within(budget_, reserve_);
  }
  const int64_t predicted = plan.predicted.peak_reserved_bytes;
  if (predicted > limit_) {
    throw OutOfBudget("the plan " + options_.plan_file + " peaks at " + format_bytes(predicted) +
                          ", above the budget of " + format_bytes(budget_) +
                          ". Fix: plan again for this budget",
                      budget_, variant->smallest_peak_bytes() + reserve_);
  }
  variant->use_plan(std::move(plan));
  variants_.push_back(std::move(variant));
  strict_ = true;
  from_file_ = true;
  if (verified) {
    mark_trusted();
  }
  phase_ = verified ? SessionPhase::enforce : SessionPhase::verify;
}

void SessionImpl::mark_trusted() {
  for (const uint64_t recipe : current().droppable()) {
    runtime_->trusted.insert(recipe);
  }
}

}  // namespace lowtide::runtime
