// The default: two greedy descents, then large-neighbourhood search at levels spread over all
// reachable peaks, denser where the time rises fast. Independent of any budget, so its frontier is
// one for all. Arguments, joined by "+": "peak=BYTES" plans for one level only, which is quicker
// and promises nothing about other levels; "single" leaves keep bits on: the plan space in which a
// value is recomputed once; "seconds=S" ends with what has been found by then, the frontier's
// points included (then, and only then, the result depends on the machine).
#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <iterator>
#include <set>
#include <string>

#include "core/error.h"
#include "planner/greedy_paths.h"
#include "planner/local_search.h"
#include "planner/strategy.h"

namespace lowtide::planner {
namespace {

constexpr int kLevels = 64;
constexpr int kRefinements = 48;
constexpr int64_t kLevelWork = 1500;  // per candidate, of a trace of one
constexpr int64_t kMostLevelWork = 25'000'000;
// The search for the lowest peak, and that for one level only, take this many levels' work.
constexpr int64_t kFloorLevels = 16;
constexpr int64_t kFloorWork = 40'000'000;  // and this, which small traces need too
constexpr int64_t kOnlyLevels = 20;
// At the lowest peak many are dropped and few plans fit: a repair rarely succeeds.
constexpr int64_t kBottomLevels = 16;

struct Arguments {
  bool duplicates = true;
  int64_t only_peak_bytes = -1;
  int64_t seconds = -1;
};

// "name=NUMBER" into `value`; false where `word` is of another name.
bool take_number(std::string_view word, std::string_view name, int64_t& value) {
  if (!word.starts_with(name) || word.substr(name.size(), 1) != "=") return false;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data() + name.size() + 1, end, value);
  if (error != std::errc() || rest != end || value < 0) {
    throw InvalidInput("strategy lowtide: \"" + std::string(word) + "\" is not " +
                       std::string(name) + "=N with a whole number");
  }
  return true;
}

Arguments parse(std::string_view text) {
  Arguments arguments;
  while (!text.empty()) {
    const size_t plus = text.find('+');
    const std::string_view word = text.substr(0, plus);
    if (word == "single") {
      arguments.duplicates = false;
    } else if (!take_number(word, "peak", arguments.only_peak_bytes) &&
               !take_number(word, "seconds", arguments.seconds)) {
      throw InvalidInput("strategy lowtide: \"" + std::string(word) +
                         "\" is not known; use single, peak=BYTES or seconds=S");
    }
    text = plus == std::string_view::npos ? std::string_view() : text.substr(plus + 1);
  }
  return arguments;
}

// Work for one level. Grows a little faster than the number of candidates, so that planning time
// stays below its power of 3/2.
int64_t level_work(size_t candidates) {
  const auto n = static_cast<int64_t>(candidates);
  int64_t root = 1;
  while (root * root * root * root < 4 * n) ++root;
  return std::min(kLevelWork * n * root, kMostLevelWork);
}

// Of the time limit, counted from the simulator's beginning, a fifth is left for the frontier.
std::function<bool()> stop_within(int64_t seconds, const Simulator& simulator, Archive& archive) {
  if (seconds < 0) return {};
  const std::chrono::milliseconds limit(1000 * std::min<int64_t>(seconds, 1'000'000'000));
  archive.end_by(simulator.begun() + limit);
  return
      [end = simulator.begun() + limit / 5 * 4] { return std::chrono::steady_clock::now() >= end; };
}

class Explorer {
 public:
  Explorer(const Simulator& simulator, Archive& archive, const Arguments& arguments)
      : simulator_(simulator),
        archive_(archive),
        search_(simulator, archive,
                {.strategy = "lowtide",
                 .duplicates = arguments.duplicates,
                 .stop = stop_within(arguments.seconds, simulator, archive)}),
        level_work_(level_work(search_.order().size())) {
    search_.offer();
  }

  void one_level(int64_t peak_bytes) {
    if (search_.order().empty() || search_.peak_bytes() <= peak_bytes) return;
    bool reached = false;
    search_.allow(kFloorLevels * level_work_);
    for (const bool by_area : {true, false}) {
      search_.restore({});
      if (!(by_area ? search_.lower_to(peak_bytes) : search_.lower_peak_to(peak_bytes))) continue;
      search_.trim(peak_bytes);
      reached = true;
    }
    if (!reached) {
      search_.allow(kFloorLevels * level_work_);
      find_floor(simulator_, search_, archive_);
      sink();
    }
    improve(peak_bytes, kOnlyLevels * level_work_);
  }

  void all_levels() {
    if (search_.order().empty()) return;
    const int64_t top = search_.peak_bytes();
    explore_greedily(simulator_, search_, archive_);
    sink();
    const int64_t floor = archive_.entries().begin()->first;
    const auto level = [&](int i) { return top - (top - floor) / kLevels * i; };
    for (int i = 1; i < kLevels && !search_.stopped(); ++i) improve(level(i), level_work_);
    improve(floor, kBottomLevels * level_work_);
    // What helped below may help above, once trimmed.
    for (int i = kLevels - 1; i > 0 && !search_.stopped(); --i) {
      search_.allow(level_work_);
      search_.restore(archive_.cheapest(level(i + 1))->decisions);
      search_.trim(level(i));
    }
    for (int i = 0; i < kRefinements && !search_.stopped(); ++i) refine();
  }

 private:
  // Below the floor that greedy has found, from there and by another way from keep all.
  void sink() {
    const int64_t work = (kFloorWork + kFloorLevels * level_work_) / 2;
    search_.allow(work);
    search_.restore(archive_.entries().begin()->second.decisions);
    search_.sink_deeper();
    search_.allow(work);
    search_.restore({});
    search_.sink();
    search_.sink_deeper();
  }

  void improve(int64_t peak_bytes, int64_t work) {
    const Archive::Entry* best = archive_.cheapest(peak_bytes);
    if (best == nullptr) return;
    search_.allow(work);
    search_.restore(best->decisions);
    search_.trim(peak_bytes);
    search_.improve(peak_bytes);
  }

  // Half way into the widest step: there a budget pays most for what it does not use.
  void refine() {
    double widest = 0;
    int64_t middle = -1;
    const auto& entries = archive_.entries();
    for (auto low = entries.begin(), high = std::next(low); high != entries.end(); low = high++) {
      const int64_t gap = high->first - low->first;
      if (tried_.count(low->first + gap / 2) == 1) continue;
      const int64_t rise = low->second.recompute_ns - high->second.recompute_ns;
      const double area = static_cast<double>(gap) * static_cast<double>(rise) /
                          static_cast<double>(std::max<int64_t>(1, low->second.recompute_ns));
      if (area <= widest) continue;
      widest = area;
      middle = low->first + gap / 2;
    }
    if (middle < 0) return;
    tried_.insert(middle);
    improve(middle, level_work_ / 2);
  }

  const Simulator& simulator_;
  Archive& archive_;
  LocalSearch search_;
  const int64_t level_work_;
  std::set<int64_t> tried_;  // refinements
};

}  // namespace

void explore_lowtide(const Simulator& simulator, std::string_view argument, Archive& archive) {
  const Arguments arguments = parse(argument);
  Explorer explorer(simulator, archive, arguments);
  if (arguments.only_peak_bytes >= 0) {
    explorer.one_level(arguments.only_peak_bytes);
  } else {
    explorer.all_levels();
  }
}

}  // namespace lowtide::planner
