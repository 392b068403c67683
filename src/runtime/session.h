// `lowtide::Session`: training under an absolute memory budget, with bit-identical results.
//
//   lowtide::Session session({.budget = "300MiB"});
//   for (auto& batch : data) {
//     auto step = session.step();
//     optimizer.zero_grad(); loss = model->forward(batch); loss.backward(); optimizer.step();
//   }
//
// Life (design section 5): warm-up -> probe -> plan -> verify -> enforce, all of it on the user's
// own steps and under the budget from the first one. One session at a time per process; it is
// stepped from one thread at a time (a second concurrent step runs plain and says so once). While a
// session lives, torch's allocator of its device and autograd engine stub are Lowtide's; its end
// puts both back. The budget covers what Lowtide's allocator reserves plus what the step uses of
// memory allocated before the session (a model built first): the latter is known after the probe.
// Throws InvalidInput (options), OutOfBudget (from step(), or as c10::OutOfMemoryError from inside
// an op), Mismatch (a plan given by hand that belongs to another program). With LOWTIDE_DISABLE=1
// every call is a pass-through.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/plan.h"
#include "core/trace.h"

namespace lowtide {

struct SessionOptions {
  // "2GiB", bytes, "auto" (CPU: cgroup limit or available memory; CUDA: the device's), "none"
  std::string budget = "auto";
  // Whose memory the budget is of: "cpu", "cuda" (its first device), "cuda:1". On CUDA the budget
  // covers what torch reserves and what else the device holds, and times are of the device; tensors
  // elsewhere are left alone.
  std::string device = "cpu";
  std::string reserve = "0";     // bytes to leave free below the budget
  std::string name = "session";  // file names: <directory>/<name>-<fingerprint>.{trace,plan}.json
  std::string directory = "lowtide";
  bool store = true;  // write and look for files in `directory`
  std::string plan_file =
      {};  // use this plan (and the trace beside it) from step 1; Mismatch if it differs
  // Of the planner, by name; empty: its default. Plans by another than the default are not stored.
  std::string strategy = {};
  int warmup_steps = 2;
  // Beside these, in turn with them, steps that Lowtide does not watch: they tell what the plain
  // step takes and what watching it adds, so that plans predict both. Nothing can be evicted in
  // them: an allocation over the budget fails, and they end. For probes with room, all steps being
  // alike.
  int unwatched_steps = 0;
  int probe_steps = 3;
  int canary_every = 1000;  // steps between canaries; 0 = off
  int stats_every = 0;      // steps between JSON lines on stderr; 0 = off
  bool verbose = false;     // phase lines on stderr
};

enum class SessionPhase : uint8_t { disabled, warmup, probe, verify, enforce };

struct SessionStats {
  int64_t steps = 0;
  SessionPhase phase = SessionPhase::warmup;
  int64_t budget_bytes = 0;
  int64_t peak_requested_bytes = 0;  // over all steps
  int64_t peak_rounded_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t warmup_peak_reserved_bytes = 0;  // per phase, each the maximum over its steps
  int64_t probe_peak_reserved_bytes = 0;
  int64_t verify_peak_reserved_bytes = 0;
  int64_t enforce_peak_reserved_bytes = 0;
  int64_t steps_over_budget = 0;
  int64_t recompute_ns = 0;  // total over all steps
  int64_t replayed_ops = 0;
  int64_t evictions = 0;
  int64_t evicted_bytes = 0;
  int64_t rescues = 0;
  int64_t rescued_bytes = 0;
  int64_t divergences = 0;  // steps that left their plan
  int64_t variants = 0;     // plans known
  int64_t verified = 0;     // storages recomputed and compared
  int64_t mismatched = 0;
  int64_t canaries = 0;
  bool dropping_stopped = false;  // a canary failed
  std::string stop_reason = {};
};

// What one step did. Valid until the next step begins.
struct StepReport {
  int64_t index = 0;  // 1, 2, ...
  SessionPhase phase = SessionPhase::warmup;
  int64_t peak_requested_bytes = 0;
  int64_t peak_rounded_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t step_ns = 0;  // thread CPU time with one intra-op thread, else wall
  int64_t recompute_ns = 0;
  int64_t replayed_ops = 0;
  int64_t evictions = 0;
  bool diverged = false;
};

namespace runtime {
class SessionImpl;
}

// One training step: construct before the forward, destroy after the optimizer. Move-only.
class Step {
 public:
  explicit Step(runtime::SessionImpl* session);
  Step(Step&& other) noexcept : session_(other.session_) { other.session_ = nullptr; }
  Step& operator=(Step&&) = delete;
  Step(const Step&) = delete;
  ~Step();

 private:
  runtime::SessionImpl* session_;
};

class Session {
 public:
  explicit Session(SessionOptions options = {});
  ~Session();
  Session(Session&&) = delete;

  // Begins a step. Throws OutOfBudget when the probe has shown that the budget cannot be met.
  [[nodiscard]] Step step();

  [[nodiscard]] SessionPhase phase() const;
  [[nodiscard]] SessionStats stats() const;
  [[nodiscard]] StepReport last_step() const;
  [[nodiscard]] std::optional<Plan> plan() const;  // of the current variant
  [[nodiscard]] const Trace* trace() const;        // null before the probe ends
  [[nodiscard]] int64_t budget_bytes() const;      // after reserve and outside
  // One screen: peak before, budget, peak now, step time before and now, what was dropped, files.
  [[nodiscard]] std::string report() const;
  // The last step's JSON line (what stats_every prints).
  [[nodiscard]] std::string stats_json() const;

 private:
  std::unique_ptr<runtime::SessionImpl> impl_;
};

[[nodiscard]] const char* to_string(SessionPhase phase);

}  // namespace lowtide
