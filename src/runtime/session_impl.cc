#include "runtime/session_impl.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "core/bytes.h"
#include "core/error.h"
#include "planner/simulator.h"
#include "planner/strategy.h"
#include "runtime/budget.h"
#include "runtime/device_memory.h"
#include "runtime/replay.h"
#include "runtime/trace_builder.h"

namespace lowtide::runtime {
namespace {

constexpr int kMaxTightenings = 3;
constexpr int kRelearnSteps = 20;
constexpr int kMaxVerifySteps = 8;

bool disabled_by_environment() {
  const char* value = std::getenv("LOWTIDE_DISABLE");
  return value != nullptr && *value != '\0' && std::string(value) != "0";
}

}  // namespace

SessionImpl::SessionImpl(SessionOptions options, std::shared_ptr<FrontEnd> front_end)
    : options_(std::move(options)),
      store_(options_.directory, options_.name),
      warmup_(options_.warmup_steps, options_.unwatched_steps) {
  if (disabled_by_environment()) {
    disabled_ = true;
    phase_ = SessionPhase::disabled;
    stats_.phase = phase_;
    return;
  }
  if (options_.warmup_steps < 0 || options_.unwatched_steps < 0 || options_.probe_steps < 1 ||
      options_.canary_every < 0) {
    throw InvalidInput(
        "warmup_steps, unwatched_steps and canary_every must be >= 0 and probe_steps >= 1");
  }
  if (options_.unwatched_steps > 0 && options_.warmup_steps < 2) {
    throw InvalidInput("unwatched_steps are compared with warm-up steps. Fix: warmup_steps >= 2");
  }
  if (!options_.strategy.empty()) {
    (void)planner::find_strategy(options_.strategy);  // throws where there is none
  }
  if (Runtime::active() != nullptr) {
    throw InvalidInput("a Lowtide session is already open in this process. Fix: end it first");
  }
  const c10::Device device = device_from_text(options_.device);
  memory_ = memory_of(device);
  budget_ = options_.budget == "auto" && memory_->capacity_bytes() > 0
                ? memory_->capacity_bytes()
                : budget_from_text(options_.budget);
  reserve_ = parse_bytes(options_.reserve, "reserve");
  limit_ = limit_within(budget_, reserve_);
  // A device works on while its host thread sleeps.
  const profiler::ClockKind clock =
      device.is_cpu() ? profiler::choose_clock(at::get_num_threads()) : profiler::ClockKind::wall;
  runtime_ = std::make_shared<Runtime>(clock, *memory_, device);
  if (!device.is_cpu()) {
    runtime_->device_generator = at::globalContext().defaultGenerator(device);
  }
  if (!options_.plan_file.empty()) {
    load_given_plan();
  } else if (options_.store) {
    load_stored();
  }
  front_end_ = front_end != nullptr ? std::move(front_end) : make_front_end();
  memory_->open();
  memory_->trim();  // what earlier work left cached counts as reserved
  leave_room_outside();
  memory_->set_account([this] { return account_text(); });
  evictor_ = std::make_unique<Evictor>(runtime_, *memory_);
  memory_->set_limit(limit_);
  memory_->set_pressure_handler(evictor_.get());
  engine_ = std::make_unique<EngineInstallation>(runtime_, *front_end_);
  runtime_->rescale = [this](double ratio) {
    scaling_wanted_ = true;  // planning takes time and memory: it waits for the end of the step
    return limit_ == hooks::TrainingMemory::kNoLimit ? nullptr : current().scaled(ratio, limit_);
  };
  runtime_->find_variant = [this]() -> std::shared_ptr<const PlanIndex> {
    for (size_t v = 0; v < variants_.size(); ++v) {
      const std::shared_ptr<const PlanIndex>& index = variants_[v]->index();
      const std::vector<uint64_t>& seen = runtime_->step_keys;
      if (v == current_ || index == nullptr || index->size() < seen.size()) {
        continue;
      }
      size_t same = 0;
      while (same < seen.size() && index->op(same).key == seen[same]) {
        ++same;
      }
      if (same == seen.size()) {
        current_ = v;
        return index;
      }
    }
    return nullptr;
  };
  Runtime::set_active(runtime_.get());
  stats_.budget_bytes = budget_;
  if (phase_ == SessionPhase::enforce) {
    go_enforce();
  }
}

SessionImpl::~SessionImpl() {
  if (disabled_) {
    return;
  }
  Runtime::set_active(nullptr);
  runtime_->rescale = nullptr;
  runtime_->find_variant = nullptr;
  engine_.reset();
  memory_->set_sink(nullptr);
  memory_->set_pressure_handler(nullptr);
  memory_->set_limit(hooks::TrainingMemory::kNoLimit);
  try {
    rebuild_all(*runtime_);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lowtide: a graph that outlives the session keeps its recipes: %s\n",
                 error.what());
  }
  memory_->close();
  front_end_.reset();
}

// What the device holds beside the allocator's memory is part of the budget too.
void SessionImpl::leave_room_outside() {
  const int64_t outside = memory_->outside_bytes();
  if (limit_ == hooks::TrainingMemory::kNoLimit || outside == 0) return;
  limit_ = std::min(limit_, limit_within(budget_, reserve_) - outside);
  if (limit_ <= 0) {
    throw OutOfBudget("a budget of " + format_bytes(budget_) + " is less than the " +
                          format_bytes(outside) + " that " + memory_->device() +
                          " holds beside torch's memory. Fix: a larger budget",
                      budget_, -1);
  }
}

// -------------------------------------------------------------------- a step

bool SessionImpl::begin_step(bool whole) {
  if (disabled_) {
    return false;
  }
  if (step_running_.exchange(true)) {
    if (!said_concurrent_.exchange(true)) {
      std::fprintf(stderr,
                   "lowtide: a second step began while one is running: it runs plain, its "
                   "bytes count as resident\n");
    }
    return false;
  }
  if (memory_->capturing()) {
    if (!std::exchange(said_capturing_, true)) {
      std::fprintf(stderr,
                   "lowtide: a CUDA graph is being captured: the step runs plain, and what it "
                   "allocates is never dropped\n");
    }
    step_running_ = false;
    return false;
  }
  try {
    choose_mode(whole);
  } catch (...) {
    step_running_ = false;
    throw;
  }
  memory_->reset_peaks();
  core_at_begin_ = memory_->stats();
  exceptions_at_begin_ = std::uncaught_exceptions();
  if (watched_step_) {
    runtime_->begin_step();
    front_end_->enter_thread();
  }
  wait_where_timed();
  step_start_ns_ = profiler::now_ns(runtime_->clock);
  return true;
}

// What a device still does belongs to the step before. Enforced steps do not wait for it, but for
// the one whose time goes into the plan.
void SessionImpl::wait_where_timed() {
  if (phase_ != SessionPhase::enforce || confirm_enforced_) runtime_->streams.synchronize();
}

void SessionImpl::choose_mode(bool whole) {
  whole_step_ = whole;
  if (phase_ == SessionPhase::probe && static_cast<int>(logs_.size()) >= options_.probe_steps) {
    try {
      build_variant();
      phase_ = SessionPhase::verify;
      // Held as tightly as a budget would: so it is seen what exchanging memory costs.
      memory_->trim();
      memory_->set_reserved_target(current().trace().peaks.rounded_bytes);
    } catch (const Error& error) {
      // Training goes on: eviction keeps the budget without a plan.
      std::fprintf(stderr, "lowtide: no plan can be made: %s\n", error.what());
      planless_ = true;
      logs_.clear();
      phase_ = SessionPhase::warmup;
    }
  }
  if (!strict_error_.empty()) {
    throw Mismatch(strict_error_);
  }
  if (phase_ >= SessionPhase::verify && !current().plan().has_value()) {
    make_plan();
  }
  stats_.phase = phase_;
  runtime_->verify = phase_ == SessionPhase::verify;
  // The host's clock does not tell what a device takes for a recomputation.
  const bool timed = runtime_->verify && !runtime_->streams.asynchronous();
  runtime_->replay_times = timed ? &replay_times_ : nullptr;
  runtime_->plan = {};
  runtime_->canary = 0;
  watched_step_ = true;
  if (phase_ == SessionPhase::warmup && whole && warmup_.next_is_unwatched()) {
    watched_step_ = false;
    runtime_->counters = {};
    return;
  }
  if (phase_ == SessionPhase::warmup && warmup_.done() && !planless_) {
    phase_ = SessionPhase::probe;
    stats_.phase = phase_;
  }
  if (!whole) {
    runtime_->verify = false;
    return;
  }
  if (phase_ == SessionPhase::probe || relearn_steps_left_ > 0) {
    start_log();
    return;
  }
  if (phase_ == SessionPhase::verify || phase_ == SessionPhase::enforce) {
    runtime_->plan.index = current().index();
    runtime_->plan.strict = strict_;
  }
  if (phase_ == SessionPhase::enforce && options_.canary_every > 0 &&
      stats_.steps % options_.canary_every == options_.canary_every - 1) {
    pick_canary();
  }
}

void SessionImpl::pick_canary() {
  const auto& drops = current().index()->drops();
  if (!drops.empty()) {
    runtime_->canary = drops[static_cast<size_t>(canary_count_++) % drops.size()].second.creator;
  }
}

void SessionImpl::start_log() {
  memory_->trim();
  probe_resident_requested_ = memory_->stats().requested.current;
  probe_resident_rounded_ = memory_->held_bytes();
  open_log_ = std::make_unique<StepLog>(*memory_, runtime_->internal);
  runtime_->log = open_log_.get();
  ++runtime_->log_id;
  memory_->set_sink(open_log_.get());
}

void SessionImpl::end_step() noexcept {
  try {
    wait_where_timed();
    const int64_t step_ns = profiler::now_ns(runtime_->clock) - step_start_ns_;
    if (watched_step_) {
      front_end_->leave_thread();
      runtime_->end_step();
    }
    const bool failed = std::uncaught_exceptions() > exceptions_at_begin_;
    strict_error_ = runtime_->plan.strict_error;
    account_step(step_ns);
    const hooks::CoreStats core = memory_->stats();
    const int64_t exchange_ns = core.exchange_ns - core_at_begin_.exchange_ns;
    if (open_log_ != nullptr) {
      finish_log(failed, step_ns - exchange_ns);
    }
    if (failed && !watched_step_) warmup_.give_up_unwatched();
    if (!failed && (whole_step_ || phase_ == SessionPhase::warmup)) {
      handle_mismatches();
      if (scaling_wanted_ && limit_ != hooks::TrainingMemory::kNoLimit && !variants_.empty()) {
        current().prepare_scaling();
      }
      scaling_wanted_ = false;
      switch (phase_) {
        case SessionPhase::warmup: {
          const int64_t own_ns = step_ns - runtime_->counters.recompute_ns - exchange_ns;
          watched_step_ ? warmup_.add_watched(own_ns) : warmup_.add_unwatched(own_ns);
        } break;
        case SessionPhase::verify:
          replay_times_.add_exchanges(core.exchanges - core_at_begin_.exchanges, exchange_ns);
          after_verify();
          break;
        case SessionPhase::enforce:
          after_enforced();
          break;
        default:
          break;
      }
    }
    if (options_.stats_every > 0 && stats_.steps % options_.stats_every == 0) {
      std::fprintf(stderr, "%s\n", stats_json().c_str());
    }
  } catch (const std::exception& error) {
    // A destructor may not throw. The step itself was right; what could not be learnt from it is
    // not.
    std::fprintf(stderr, "lowtide: %s\n", error.what());
  }
  step_running_ = false;
}

void SessionImpl::account_step(int64_t step_ns) {
  const hooks::CoreStats core = memory_->stats();
  const StepCounters& counters = runtime_->counters;
  last_step_ = {};
  last_step_.index = ++stats_.steps;
  last_step_.phase = phase_;
  last_step_.peak_requested_bytes = core.requested.peak;
  last_step_.peak_rounded_bytes = core.rounded.peak;
  last_step_.peak_reserved_bytes = core.reserved.peak;
  last_step_.step_ns = step_ns;
  last_step_.recompute_ns = counters.recompute_ns;
  last_step_.replayed_ops = counters.replayed_ops;
  last_step_.evictions = counters.evictions;
  last_step_.diverged = runtime_->plan.diverged;
  const auto raise = [](int64_t& peak, int64_t value) { peak = std::max(peak, value); };
  raise(stats_.peak_requested_bytes, core.requested.peak);
  raise(stats_.peak_rounded_bytes, core.rounded.peak);
  raise(stats_.peak_reserved_bytes, core.reserved.peak);
  int64_t* by_phase[] = {&stats_.warmup_peak_reserved_bytes, &stats_.warmup_peak_reserved_bytes,
                         &stats_.probe_peak_reserved_bytes, &stats_.verify_peak_reserved_bytes,
                         &stats_.enforce_peak_reserved_bytes};
  raise(*by_phase[static_cast<size_t>(phase_)], core.reserved.peak);
  stats_.steps_over_budget += core.reserved.peak > limit_ ? 1 : 0;
  stats_.recompute_ns += counters.recompute_ns;
  stats_.replayed_ops += counters.replayed_ops;
  stats_.evictions += counters.evictions;
  stats_.evicted_bytes += counters.evicted_bytes;
  stats_.rescues += counters.rescues;
  stats_.rescued_bytes += counters.rescued_bytes;
  stats_.divergences += runtime_->plan.diverged ? 1 : 0;
  stats_.verified += counters.verified;
  stats_.mismatched += counters.mismatched;
  stats_.canaries += counters.canaries;
}

// -------------------------------------------------------------------- probe

void SessionImpl::finish_log(bool failed, int64_t step_ns) {
  memory_->set_sink(nullptr);
  {
    const std::lock_guard lock(runtime_->mutex);  // threads outside the step look too
    runtime_->log = nullptr;
    ++runtime_->log_id;  // saves that outlive the step belong to no log
  }
  // What eviction recomputed and the allocator exchanged is not part of the plain step.
  open_log_->finish(step_ns - runtime_->counters.recompute_ns, probe_resident_requested_,
                    probe_resident_rounded_);
  std::unique_ptr<StepLog> log = std::move(open_log_);
  if (failed) {
    return;
  }
  if (relearn_steps_left_ > 0) {
    --relearn_steps_left_;
    Hasher hasher;
    for (const uint64_t key : runtime_->step_keys) {
      hasher.add(key);
    }
    if (hasher.value() == relearn_structure_) {
      relearn_steps_left_ = 0;
      logs_.clear();
      logs_.push_back(std::move(log));
      build_variant();
      make_plan();
    }
    return;
  }
  logs_.push_back(std::move(log));
}

void SessionImpl::build_variant() {
  // Samples are pooled over steps with equal ops and sizes: the largest such group, the latest of
  // equal ones.
  std::map<uint64_t, std::vector<const StepLog*>> groups;
  for (const std::unique_ptr<StepLog>& log : logs_) {
    groups[log->shape_hash()].push_back(log.get());
  }
  std::vector<const StepLog*> same;
  for (const std::unique_ptr<StepLog>& log : logs_) {
    const std::vector<const StepLog*>& group = groups[log->shape_hash()];
    if (group.size() >= same.size()) {
      same = group;
    }
  }
  TraceBuilder builder(same, [this](int64_t bytes) { return memory_->rounded_size(bytes); });
  Trace trace = builder.build(settings());
  // The log costs time too: warm-up steps know the plain step better.
  if (const int64_t plain_ns = warmup_.plain_ns(); plain_ns > 0 && variants_.empty()) {
    trace.step_ns = warmup_.plain_is_unwatched() ? plain_ns : std::min(trace.step_ns, plain_ns);
    trace.watch_ns = warmup_.watch_ns();
  }
  trace.outside_bytes += memory_->outside_bytes();
  const bool pressed = same.back()->had_evictions();
  const planner::Simulator simulator(trace);
  const planner::SimulationResult plain =
      simulator.simulate(planner::DecisionTable(trace.storages.size()));
  trace.peaks.requested_bytes = plain.peak_requested_bytes;
  trace.peaks.rounded_bytes = plain.peak_rounded_bytes;
  trace.peaks.reserved_bytes = pressed ? 0 : last_step_.peak_reserved_bytes;
  trace.peaks.measured = !pressed;
  trace.validate();
  variants_.push_back(std::make_unique<Variant>(std::move(trace), *memory_, options_.strategy));
  current_ = variants_.size() - 1;
  stats_.variants = static_cast<int64_t>(variants_.size());
  logs_.clear();
  if (options_.store) {
    store_.save(current().trace());
    say("trace written to " + store_.trace_path(current().fingerprint()).string());
  }
}

// --------------------------------------------------------------- plan and verify

void SessionImpl::make_plan() {
  if (!current().plan().has_value()) {
    const int64_t budget =
        budget_ == hooks::TrainingMemory::kNoLimit ? budget_ : budget_ - tightened_bytes_;
    try {
      current().make_plan(budget, reserve_);
    } catch (const OutOfBudget& error) {
      if (!plan_or_smallest_) {
        throw;
      }
      current().make_plan(error.smallest_reachable_bytes(), reserve_);
    }
    Plan& plan = current().mutable_plan();
    plan.budget_bytes = budget_;
    plan.measured.verified = inherited_.verified;
    plan.measured.compared = inherited_.compared;
    plan.measured.mismatched = inherited_.mismatched;
  }
  if (limit_ != hooks::TrainingMemory::kNoLimit) {
    // What was allocated before the session is part of the budget, but not of what the core hands
    // out.
    limit_ = budget_ - reserve_ - current().trace().outside_bytes;
    if (evictor_ != nullptr) {  // the memory is open
      memory_->set_limit(limit_);
    }
  }
  stats_.variants = static_cast<int64_t>(variants_.size());
  say("plan: " + std::to_string(current().plan()->decisions.size()) +
      " storages dropped, predicted peak " +
      format_bytes(current().plan()->predicted.peak_reserved_bytes));
}

void SessionImpl::go_enforce() {
  phase_ = SessionPhase::enforce;
  confirm_enforced_ = true;
  memory_->trim();
  memory_->set_reserved_target(current().plan()->predicted.peak_reserved_bytes);
}

void SessionImpl::after_verify() {
  if (runtime_->plan.diverged) {
    if (from_file_) {
      // The stored trace is of another program: measure this one.
      variants_.clear();
      current_ = 0;
      from_file_ = false;
      phase_ = SessionPhase::warmup;
      memory_->set_reserved_target(hooks::TrainingMemory::kNoLimit);
    }
    replay_times_.clear();
    return;  // an odd step: verify in the next one
  }
  from_file_ = false;
  inherited_.compared += runtime_->counters.verified;
  inherited_.mismatched += runtime_->counters.mismatched;
  // What was evicted before it could be compared is left for the next verify step: by then the
  // verified part of the plan is enforced, so that there is room.
  std::vector<std::pair<int32_t, PlannedStorage>> open;
  for (const auto& [ordinal, planned] : current().index()->drops()) {
    if (!runtime_->trusted.contains(planned.recipe)) {
      open.emplace_back(ordinal, planned);
    }
  }
  if (!open.empty() && ++verify_steps_ < kMaxVerifySteps) {
    return;
  }
  for (const auto& [ordinal, planned] : open) {
    runtime_->never_drop.insert(planned.creator);
    current().forbid(ordinal, planned.output, "could not be verified");
  }
  if (!memory_->has_values()) {
    std::fprintf(stderr, "lowtide: values not verified (double)\n");
  }
  if (!strict_) {
    reprice();
  }
  if (!current().plan().has_value()) {
    make_plan();
  }
  verify_steps_ = 0;
  // A later run with another budget may rely on it only when every storage that any plan could drop
  // has been compared.
  const std::vector<uint64_t> droppable = current().droppable();
  inherited_.verified = memory_->has_values() &&
                        std::all_of(droppable.begin(), droppable.end(), [this](uint64_t recipe) {
                          return runtime_->trusted.contains(recipe);
                        });
  Measured& measured = current().mutable_plan().measured;
  measured.verified = inherited_.verified;
  measured.compared = inherited_.compared;
  measured.mismatched = inherited_.mismatched;
  go_enforce();
}

// Every storage has been recomputed by now: what that took is what the plan should be priced by.
void SessionImpl::reprice() {
  const Prices measured = replay_times_.prices(current().trace());
  replay_times_.clear();
  if (measured.replay_ns.empty()) {
    return;
  }
  const Prices before = current().prices();
  current().set_prices(measured);
  try {
    make_plan();
  } catch (const OutOfBudget&) {
    // Other prices lead the search elsewhere: a budget that was reachable stays so.
    current().set_prices(before);
    make_plan();
  }
  if (options_.store) {
    store_.save(current().trace());
  }
}

void SessionImpl::handle_mismatches() {
  std::vector<Runtime::MismatchReport> mismatches;
  {
    const std::lock_guard lock(runtime_->mutex);
    mismatches.swap(runtime_->mismatches);
  }
  for (const Runtime::MismatchReport& mismatch : mismatches) {
    std::fprintf(stderr, "lowtide: %s: %s; it is never dropped from now on\n",
                 mismatch.canary ? "canary" : "verify", mismatch.text.c_str());
    if (mismatch.canary) {
      stats_.dropping_stopped = true;
      stats_.stop_reason = mismatch.text;
    }
    if (!variants_.empty()) {
      current().forbid(mismatch.ordinal, mismatch.output, "recomputed bytes differ");
    }
  }
  if (!mismatches.empty() && !variants_.empty()) {
    make_plan();
    if (phase_ == SessionPhase::enforce) {
      go_enforce();
    }
  }
}

// ---------------------------------------------------------------------- enforce

void SessionImpl::after_enforced() {
  const PlanRun& run = runtime_->plan;
  if (run.diverged) {
    if (from_file_ && !strict_) {
      variants_.clear();
      current_ = 0;
      from_file_ = false;
      phase_ = SessionPhase::warmup;
      memory_->set_reserved_target(hooks::TrainingMemory::kNoLimit);
      say("the stored trace is of another program; measuring this one");
    } else {
      learn_structure();
    }
    return;
  }
  from_file_ = false;
  if (!confirm_enforced_ || run.sizes_differ || run.index != current().index()) {
    return;
  }
  // The first steps under a new plan still hold what the earlier mode left alive.
  if (runtime_->counters.evictions > 0 && tightenings_ < kMaxTightenings &&
      limit_ != hooks::TrainingMemory::kNoLimit) {
    ++tightenings_;
    tightened_bytes_ += std::max<int64_t>(runtime_->counters.evicted_bytes, limit_ / 200);
    say("the plan needed " + format_bytes(runtime_->counters.evicted_bytes) +
        " more than predicted; taking the next one");
    try {
      const int64_t budget = budget_ - tightened_bytes_;
      current().make_plan(budget, reserve_);
      current().mutable_plan().budget_bytes = budget_;
      current().mutable_plan().measured = inherited_;
      memory_->set_reserved_target(current().plan()->predicted.peak_reserved_bytes);
    } catch (const OutOfBudget&) {
      tightenings_ = kMaxTightenings;  // eviction keeps the budget, at its price
    }
    return;
  }
  confirm_enforced_ = false;
  Plan& plan = current().mutable_plan();
  plan.measured.peak_requested_bytes = last_step_.peak_requested_bytes;
  plan.measured.peak_rounded_bytes = last_step_.peak_rounded_bytes;
  plan.measured.peak_reserved_bytes = last_step_.peak_reserved_bytes;
  plan.measured.step_ns = last_step_.step_ns;
  if (options_.store && options_.strategy.empty()) {
    store_.save(plan);
    say("plan written to " + store_.plan_path(plan.trace_fingerprint).string());
  }
}

void SessionImpl::change_budget(int64_t budget_bytes) {
  budget_ = budget_bytes;
  stats_.budget_bytes = budget_;
  limit_ = limit_within(budget_, reserve_);
  memory_->set_limit(limit_);
}

void SessionImpl::learn_structure() {
  Hasher hasher;
  for (const uint64_t key : runtime_->step_keys) {
    hasher.add(key);
  }
  if (++unknown_structures_[hasher.value()] == 2 && relearn_steps_left_ == 0) {
    relearn_structure_ = hasher.value();
    relearn_steps_left_ = kRelearnSteps;
  }
}

std::optional<Plan> SessionImpl::plan() const {
  return variants_.empty() ? std::nullopt : current().plan();
}

const Trace* SessionImpl::trace() const { return variants_.empty() ? nullptr : &current().trace(); }

}  // namespace lowtide::runtime
