#include "random/judge.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "core/error.h"
#include "counting/mapping_counter.h"
#include "hooks/torch_cpu_memory.h"
#include "planner/checker.h"
#include "planner/planner.h"
#include "runtime/store.h"
#include "runtime/variant.h"

namespace lowtide::testing {
namespace {

constexpr int kProbedSteps = 4;  // warm-up, probe, verify, enforce
constexpr int kEnforcedSteps = 3;
constexpr int kColdSteps = 6;

// Both ways of seeing ops get half of the programs.
class FrontEndOf {
 public:
  explicit FrontEndOf(uint64_t seed) {
    setenv("LOWTIDE_FRONT_END", seed % 2 == 0 ? "record_function" : "dispatch_key", 1);
  }
  ~FrontEndOf() { unsetenv("LOWTIDE_FRONT_END"); }
  FrontEndOf(const FrontEndOf&) = delete;
  FrontEndOf& operator=(const FrontEndOf&) = delete;
};

SessionOptions quick(const std::string& budget) {
  SessionOptions options;
  options.budget = budget;
  options.store = false;
  options.warmup_steps = 1;
  options.probe_steps = 1;
  return options;
}

planner::PlannerOptions quick_planning() {
  static const auto memory = hooks::make_torch_cpu_memory();
  planner::PlannerOptions options = runtime::planner_options(*memory, 0);
  options.bound_work = 0;  // nobody reads how near the plans are
  return options;
}

std::string difference(const Observed& plain, const SessionRun& run) {
  for (size_t i = 0; i < run.observed.size(); ++i) {
    if (run.observed[i] != plain[i]) {
      return "step " + std::to_string(i + 1) + " has other bits\n  plain " + plain[i] +
             "\n  here  " + run.observed[i];
    }
  }
  return {};
}

// The run itself, its bits, its memory. Nothing where the budget was refused by name.
std::string judge_run(const Program& program, const Observed& plain, int steps,
                      const SessionOptions& options, int64_t outside, Tally& tally,
                      std::optional<SessionRun>& run) {
  counting::reset_mapped_peak();
  try {
    run = run_session(program, steps, options);
  } catch (const OutOfBudget&) {
    ++tally.refused;
    return {};
  } catch (const c10::OutOfMemoryError&) {
    ++tally.refused;
    return {};
  } catch (const std::exception& error) {
    return std::string("an error that the plain program does not raise: ") + error.what();
  }
  std::string text = difference(plain, *run);
  if (text.empty() && run->stats.mismatched > 0) {
    text = "verification found other bytes in a program without undeclared effects";
  }
  if (text.empty() && options.budget != "none") {
    const int64_t mapped = counting::mapped_bytes().peak + outside;
    if (mapped > std::stoll(options.budget) || run->stats.steps_over_budget > 0) {
      text = "over the budget: " + std::to_string(mapped) + " bytes held";
    }
  }
  tally.evicted += run->stats.evictions > 0 ? 1 : 0;
  tally.diverged += run->stats.divergences > 0 ? 1 : 0;
  tally.replayed_ops += run->stats.replayed_ops;
  return text;
}

// Autograd names the op that wrote the tensor, Lowtide (which does not keep the tensor) the one
// that had made it; and where the history of a view cannot be made up any more, autograd complains
// of that before it looks at the version.
bool same_refusal(const std::string& plain, const std::string& here) {
  const auto without_the_op = [](const std::string& refusal) {
    const size_t name = refusal.find(", which is output ");
    const size_t rest = refusal.find(", is at version ");
    return name == std::string::npos || rest == std::string::npos
               ? refusal
               : refusal.substr(0, name) + refusal.substr(rest);
  };
  const bool of_a_view = plain.find("has been modified inplace") != std::string::npos &&
                         here.find("modified by an inplace operation") != std::string::npos;
  return of_a_view || without_the_op(plain) == without_the_op(here);
}

std::string judge_plan(const SessionRun& run) {
  if (!run.plan.has_value() || !run.trace.has_value()) {
    return {};
  }
  const planner::CheckResult check = planner::check_plan(*run.trace, *run.plan);
  return check ? std::string()
               : std::string("the checker says ") + planner::to_string(check.verdict) + ": " +
                     check.detail;
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  programs += other.programs;
  refused_alike += other.refused_alike;
  pairs += other.pairs;
  dropped += other.dropped;
  evicted += other.evicted;
  diverged += other.diverged;
  refused += other.refused;
  replayed_ops += other.replayed_ops;
  for (const auto& [name, count] : other.ran) {
    ran[name] += count;
  }
  return *this;
}

std::string Tally::text() const {
  return std::to_string(programs) + " programs, " + std::to_string(pairs) + " pairs: dropped " +
         std::to_string(dropped) + ", evicted " + std::to_string(evicted) + ", diverged " +
         std::to_string(diverged) + ", refused " + std::to_string(refused) + "; " +
         std::to_string(replayed_ops) + " ops replayed; " + std::to_string(refused_alike) +
         " programs refused by autograd, alike";
}

BudgetRange budgets_of(const Trace& trace, const planner::Frontier& frontier) {
  // Points fall in peak: the last of those that drop nothing holds the least.
  int64_t keep_all = frontier.points().front().predicted.peak_reserved_bytes;
  for (const planner::FrontierPoint& point : frontier.points()) {
    if (point.decisions.empty()) keep_all = point.predicted.peak_reserved_bytes;
  }
  return {frontier.smallest_peak_bytes() + trace.outside_bytes, keep_all + trace.outside_bytes};
}

std::string judge(const RandomProgram& random_program, Tally& tally) {
  const FrontEndOf front_end(random_program.seed);
  const Program program = runnable(random_program);
  const Observed plain = run_plain(program, kColdSteps);
  ++tally.programs;
  for (const Instruction& instruction : random_program.body) {
    ++tally.ran[instruction.kind->name];
  }

  const ScratchDirectory directory;
  SessionOptions stored = quick("none");
  stored.store = true;
  stored.directory = directory.path();
  std::optional<SessionRun> probed;
  Tally probe_tally;
  std::string text = judge_run(program, plain, kProbedSteps, stored, 0, probe_tally, probed);
  if (!text.empty() || !probed.has_value() || !probed->trace.has_value()) {
    return "without a limit: " + (text.empty() ? "no trace after the probe" : text);
  }
  // One search for all budgets: the plans are left where the sessions look for them.
  const Trace& trace = *probed->trace;
  const planner::PlannerOptions planning = quick_planning();
  const planner::Frontier frontier = planner::build_frontier(trace, planning);
  const BudgetRange range = budgets_of(trace, frontier);
  for (const int64_t percent : {25, 50, 75}) {
    const int64_t bytes = range.at_percent(percent);
    const std::string budget = std::to_string(bytes);
    Plan plan = planner::make_plan(trace, frontier, bytes, planning);
    plan.measured = probed->plan->measured;
    runtime::Store(stored.directory, stored.name).save(plan);
    ++tally.pairs;
    stored.budget = budget;
    std::optional<SessionRun> run;
    text = judge_run(program, plain, kEnforcedSteps, stored, trace.outside_bytes, tally, run);
    if (text.empty() && run.has_value()) {
      text = judge_plan(*run);
      tally.dropped += run->stats.replayed_ops > 0 && !run->plan->decisions.empty() ? 1 : 0;
    }
    if (!text.empty()) {
      return "at " + budget + " bytes (" + std::to_string(percent) + " %): " + text;
    }
  }
  const std::string half = std::to_string(range.at_percent(50));
  Tally cold_tally;
  std::optional<SessionRun> cold;
  // What was made before the session is known, and counted, once the probe has seen it.
  text = judge_run(program, plain, kColdSteps, quick(half), 0, cold_tally, cold);
  tally.replayed_ops += cold_tally.replayed_ops;
  return text.empty() ? text : "from step 1 at " + half + " bytes: " + text;
}

std::string judge_refusal(const RandomProgram& program, Tally& tally) {
  const FrontEndOf front_end(program.seed);
  const std::string plain = refusal_of(program);
  ++tally.refused_alike;
  try {
    (void)run_session(runnable(program), 1, quick("none"));
  } catch (const c10::Error& error) {
    return same_refusal(plain, error.what_without_backtrace())
               ? std::string()
               : "autograd says: " + plain + "\nhere: " + error.what_without_backtrace();
  } catch (const std::exception& error) {
    return "autograd says: " + plain + "\nhere: " + error.what();
  }
  return "accepted, while autograd says: " + plain;
}

std::string judge_seed(uint64_t seed, Tally& tally) {
  const RandomProgram drawn = generate(seed);
  const auto finding_of = [&](const RandomProgram& program, Tally& counts) {
    return refusal_of(program).empty() ? judge(program, counts) : judge_refusal(program, counts);
  };
  RandomProgram program = drawn;
  std::string finding = refusal_of(drawn).empty() ? "" : judge_refusal(drawn, tally);
  if (finding.empty()) {
    program = repair(drawn);
    finding = judge(program, tally);
  }
  if (finding.empty()) {
    return {};
  }
  Tally ignored;
  const RandomProgram small = shrink(program, [&](const RandomProgram& candidate) {
    return !finding_of(candidate, ignored).empty();
  });
  return "seed " + std::to_string(seed) + ": " + finding +
         "\nsmallest program that fails: " + to_text(small) + "\n" + finding_of(small, ignored);
}

}  // namespace lowtide::testing
