// The life of a session: warm-up -> probe -> plan -> verify -> enforce, on the user's own steps.
//
// Not thread-safe but for `begin_step`, which notices a second concurrent step. Owned by Session.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hooks/training_memory.h"
#include "runtime/capture.h"
#include "runtime/engine.h"
#include "runtime/eviction.h"
#include "runtime/runtime_state.h"
#include "runtime/session.h"
#include "runtime/step_log.h"
#include "runtime/store.h"
#include "runtime/variant.h"
#include "runtime/warmup.h"

namespace lowtide::runtime {

class SessionImpl {
 public:
  // `front_end`: one that is registered already; null = makes its own.
  explicit SessionImpl(SessionOptions options, std::shared_ptr<FrontEnd> front_end = nullptr);
  ~SessionImpl();
  SessionImpl(const SessionImpl&) = delete;
  SessionImpl& operator=(const SessionImpl&) = delete;

  // False: the step runs plain (disabled, or a step is already running). A step that is not `whole`
  // was noticed when its first op had run: it is kept under the budget, follows no plan, teaches
  // nothing.
  bool begin_step(bool whole = true);
  void end_step() noexcept;

  [[nodiscard]] SessionPhase phase() const { return phase_; }
  [[nodiscard]] const SessionStats& stats() const { return stats_; }
  [[nodiscard]] const StepReport& last_step() const { return last_step_; }
  [[nodiscard]] std::optional<Plan> plan() const;
  [[nodiscard]] const Trace* trace() const;
  [[nodiscard]] int64_t limit_bytes() const { return limit_; }
  [[nodiscard]] std::string report() const;
  [[nodiscard]] std::string stats_json() const;
  // What an allocation that cannot be met is told besides its own figures.
  [[nodiscard]] std::string account_text();
  [[nodiscard]] const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  // Another budget from the next step on; plans already chosen stay.
  void change_budget(int64_t budget_bytes);
  // Where no plan meets the budget: take the smallest one and leave the rest to eviction. For
  // programs that were seen to run within the budget without a plan.
  void rely_on_eviction() { plan_or_smallest_ = true; }

 private:
  void leave_room_outside();
  void load_stored();
  void load_given_plan();
  void wait_where_timed();
  void choose_mode(bool whole);
  void make_plan();  // of the current variant; throws OutOfBudget
  void go_enforce();
  void start_log();
  void finish_log(bool failed, int64_t step_ns);
  void build_variant();
  void after_verify();
  void reprice();
  void after_enforced();
  void learn_structure();
  void handle_mismatches();
  void mark_trusted();
  void pick_canary();
  void account_step(int64_t step_ns);
  void say(const std::string& line) const;
  [[nodiscard]] TraceSettings settings() const;
  Variant& current() { return *variants_[current_]; }
  [[nodiscard]] const Variant& current() const { return *variants_[current_]; }

  SessionOptions options_;
  bool disabled_ = false;
  int64_t budget_ = 0;  // as asked, bytes
  int64_t reserve_ = 0;
  int64_t limit_ = 0;  // budget - reserve, what the allocator may reserve
  Store store_;
  std::unique_ptr<hooks::TrainingMemory> memory_;
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<FrontEnd> front_end_;
  std::unique_ptr<EngineInstallation> engine_;
  std::unique_ptr<Evictor> evictor_;

  SessionPhase phase_ = SessionPhase::warmup;
  Warmup warmup_;                               // times without recomputation and exchanges
  std::vector<std::unique_ptr<StepLog>> logs_;  // finished probe logs of one structure
  std::unique_ptr<StepLog> open_log_;
  int64_t probe_resident_requested_ = 0;
  int64_t probe_resident_rounded_ = 0;
  std::vector<std::unique_ptr<Variant>> variants_;
  size_t current_ = 0;
  bool from_file_ = false;         // the current variant came from a file and is not yet confirmed
  bool strict_ = false;            // the plan was given by hand
  std::string strict_error_;       // it turned out to be of another program
  bool plan_or_smallest_ = false;  // a budget below all plans is no error
  bool planless_ = false;          // the probe could not be turned into a plan
  bool confirm_enforced_ = false;  // the next enforced step's measures go into the plan
  Measured inherited_;             // verification of the current trace
  int tightenings_ = 0;
  int64_t tightened_bytes_ = 0;
  std::map<uint64_t, int> unknown_structures_;
  bool scaling_wanted_ = false;  // a step of other sizes ran: have its plans ready
  int relearn_steps_left_ = 0;   // steps to watch for an unknown structure
  uint64_t relearn_structure_ = 0;
  int64_t canary_count_ = 0;

  std::atomic<bool> step_running_{false};
  std::atomic<bool> said_concurrent_{false};
  bool said_capturing_ = false;
  bool whole_step_ = true;
  bool watched_step_ = true;
  int exceptions_at_begin_ = 0;
  int64_t step_start_ns_ = 0;
  hooks::CoreStats core_at_begin_;
  int verify_steps_ = 0;
  ReplayTimes replay_times_;  // of the verify steps of the current variant
  SessionStats stats_;
  StepReport last_step_;
};

}  // namespace lowtide::runtime
