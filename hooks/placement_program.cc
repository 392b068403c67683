#include "hooks/placement_program.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "hooks/device_pool.h"
#include "hooks/placement.h"

namespace lowtide::hooks {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Requests of one stream and its step marks, with the questions that planning asks of them.
class StreamHistory {
 public:
  explicit StreamHistory(const RecordedStream& stream)
      : blocks_(stream.blocks), marks_(stream.marks) {}

  [[nodiscard]] int64_t steps() const { return static_cast<int64_t>(marks_.size()) - 1; }
  [[nodiscard]] int64_t mark(int64_t step) const { return marks_[static_cast<size_t>(step)]; }
  [[nodiscard]] int64_t length(int64_t step) const { return mark(step + 1) - mark(step); }
  [[nodiscard]] const RecordedBlock& block(int64_t request) const {
    return blocks_[static_cast<size_t>(request)];
  }
  [[nodiscard]] int64_t died(int64_t request) const {
    const int64_t died = block(request).died;
    return died == RecordedBlock::kAlive ? kNever : died;
  }

  // The first request in which two steps differ, by its place in them; -1 = they are the same.
  [[nodiscard]] int64_t first_difference(int64_t a, int64_t b) const {
    const int64_t common = std::min(length(a), length(b));
    for (int64_t i = 0; i < common; ++i) {
      if (block(mark(a) + i).bytes != block(mark(b) + i).bytes) return i;
    }
    return length(a) == length(b) ? -1 : common;
  }

  // The first of the last steps that are all the same.
  [[nodiscard]] int64_t first_steady() const {
    int64_t first = steps() - 1;
    while (first > 0 && first_difference(first - 1, first) < 0) --first;
    return first;
  }

  [[nodiscard]] int64_t bytes_of_last_step() const {
    int64_t bytes = 0;
    for (int64_t i = mark(steps() - 1); i < mark(steps()); ++i) bytes += block(i).bytes;
    return bytes;
  }

 private:
  const std::deque<RecordedBlock>& blocks_;
  const std::vector<int64_t>& marks_;
};

class BandPlanner {
 public:
  BandPlanner(const StreamHistory& history, const ProgramOptions& options,
              std::span<const int64_t> residents)
      : history_(history), options_(options), residents_(residents) {
    steady_ = history_.first_steady();
    period_ = history_.length(steady_);
    // Another cut needs a step more: its last requests come after the last but one mark.
    if (options_.whole_program && history_.steps() - steady_ >= 3) cut_ = least_live();
    begin_ = options_.whole_program ? history_.mark(steady_) + cut_ : history_.mark(steady_);
    time_ = period_ + (options_.whole_program ? begin_ : 0);
  }

  // Offsets count from 0.
  PlannedBand plan(int64_t& lower_bound_bytes) && {
    add_start();
    add_cycle();
    if (time_ == 0) time_ = 1;  // residents only
    for (PlacedBuffer& buffer : buffers_) {
      if (buffer.upper == kNever) buffer.upper = time_;
    }
    PlacementOptions placing;
    placing.period = time_;
    placing.max_nodes = options_.max_nodes;
    const Placement placement = place(buffers_, placing);
    for (size_t i = 0; i < buffers_.size(); ++i) {
      band_.slots.push_back({placement.offsets[i], buffers_[i].bytes});
    }
    band_.bytes = placement.height_bytes;
    lower_bound_bytes = placement.lower_bound_bytes;
    return std::move(band_);
  }

 private:
  // Steps before the steady one. Their time comes after the steady step's, in the same circle: what
  // of them lives into the first steady step lives over the circle's end.
  void add_start() {
    if (!options_.whole_program) {
      if (residents_.empty()) return;
      PlannedStep& step = band_.steps.emplace_back();
      for (const int64_t requested : residents_) {
        const auto bytes =
            static_cast<int64_t>(DevicePool::rounded(static_cast<size_t>(requested)));
        add_request(step, bytes, -1, {0, kNever, bytes, PlacementPlan::kGranule}, 1);
      }
      step.mark_at = static_cast<int32_t>(step.requests.size());
      return;
    }
    int64_t request = 0;
    for (int64_t i = 0; i <= steady_; ++i) {
      const int64_t end = i == steady_ ? begin_ : std::min(history_.mark(i) + cut_, begin_);
      PlannedStep& step = band_.steps.emplace_back();
      step.mark_at = static_cast<int32_t>(
          std::clamp(history_.mark(i) - request, int64_t{0}, std::max(int64_t{0}, end - request)));
      for (; request < end; ++request) add_once(step, request);
    }
  }

  void add_once(PlannedStep& step, int64_t request) {
    const RecordedBlock& block = history_.block(request);
    const int64_t died = history_.died(request);
    PlacedBuffer buffer{period_ + request, kNever, block.bytes, PlacementPlan::kGranule};
    if (died <= begin_) {
      buffer.upper = period_ + died;
    } else if (died < begin_ + period_ && died - begin_ != buffer.lower) {
      buffer.upper = died - begin_;
    } else {
      buffer.lower = 0;
    }
    add_request(step, block.bytes, -1, buffer, 1);
  }

  void add_cycle() {
    PlannedStep& step = band_.steps.emplace_back();
    step.mark_at = static_cast<int32_t>(cut_ == 0 ? period_ : period_ - cut_);
    for (int64_t i = 0; i < period_; ++i) {
      const int64_t first = begin_ + i;
      const int64_t bytes = history_.block(first).bytes;
      const int64_t life = life_of(first);
      if (life == kNever) {
        step.requests.push_back({bytes, -1, -1, 0});  // each step keeps another
        continue;
      }
      PlacedBuffer buffer{i, i + life, bytes, PlacementPlan::kGranule};
      if (buffer.upper > period_) buffer.upper -= period_;
      if (life >= period_) buffer = {0, kNever, bytes, PlacementPlan::kGranule};
      add_request(step, bytes, op_of(first), buffer, (life + period_ - 1) / period_);
    }
  }

  // The longest life of a request of the steady step; kNever when it has not ended in any of them.
  // What ends after the last step ends with the training.
  [[nodiscard]] int64_t life_of(int64_t first) const {
    const int64_t end = history_.mark(history_.steps());
    int64_t longest = -1;
    for (int64_t i = first; i < end; i += period_) {
      if (history_.died(i) <= end) longest = std::max(longest, history_.died(i) - i);
    }
    return longest < 0 ? kNever : longest;
  }

  // Known only where it is the same in each step.
  [[nodiscard]] int32_t op_of(int64_t first) const {
    const int32_t op = history_.block(first).op;
    for (int64_t i = first; i < history_.mark(history_.steps()); i += period_) {
      if (history_.block(i).op != op) return -1;
    }
    return op;
  }

  // How many requests after the step mark the least is live, just before the next request; the mark
  // itself where nothing is better.
  [[nodiscard]] int64_t least_live() const {
    std::vector<int64_t> change(static_cast<size_t>(period_) + 1);
    for (int64_t i = 0; i < period_; ++i) {
      const int64_t life = life_of(history_.mark(steady_) + i);
      if (life >= period_) continue;  // everywhere, or nowhere
      const int64_t bytes = history_.block(history_.mark(steady_) + i).bytes;
      const auto from = static_cast<size_t>(i + 1), to = static_cast<size_t>(i + life);
      const auto end = static_cast<size_t>(period_);
      change[from] += bytes;
      if (to <= end) {
        change[to] -= bytes;
      } else {
        change[0] += bytes;
        change[to - end] -= bytes;
      }
    }
    int64_t live = 0, least = kNever, at = 0;
    for (int64_t i = 0; i < period_; ++i) {
      live += change[static_cast<size_t>(i)];
      if (live < least) {
        least = live;
        at = i;
      }
    }
    return at;
  }

  void add_request(PlannedStep& step, int64_t bytes, int32_t op, const PlacedBuffer& buffer,
                   int64_t slots) {
    step.requests.push_back(
        {bytes, op, static_cast<int32_t>(buffers_.size()), static_cast<int32_t>(slots)});
    buffers_.insert(buffers_.end(), static_cast<size_t>(slots), buffer);
  }

  const StreamHistory& history_;
  const ProgramOptions& options_;
  const std::span<const int64_t> residents_;
  int64_t steady_ = 0;  // the first steady step
  int64_t period_ = 0;  // its requests
  int64_t cut_ = 0;     // requests from its mark to where the plan's step begins
  int64_t begin_ = 0;   // first request of the plan's steady step
  int64_t time_ = 0;    // of the whole circle
  PlannedBand band_;
  std::vector<PlacedBuffer> buffers_;  // one per slot
};

void check_recording(const Recording& recording) {
  if (!recording.complete) {
    throw InvalidInput(
        "the recording of memory requests is incomplete: the machine had no memory "
        "for it. Fix: record fewer steps");
  }
  if (recording.streams.empty()) {
    throw InvalidInput("no memory request was recorded. Fix: record while the program trains");
  }
  if (recording.streams.front().marks.size() < 3) {
    throw InvalidInput("a plan needs two whole steps, " +
                       std::to_string(recording.streams.front().marks.size()) +
                       " step marks were recorded. Fix: mark each step, at least three times");
  }
}

size_t find_largest(const Recording& recording) {
  size_t largest = 0;
  int64_t most = -1;
  for (size_t i = 0; i < recording.streams.size(); ++i) {
    const int64_t bytes = StreamHistory(recording.streams[i]).bytes_of_last_step();
    if (bytes > most) {
      most = bytes;
      largest = i;
    }
  }
  return largest;
}

}  // namespace

PlacementPlan plan_program(const Recording& recording, const ProgramOptions& options) {
  check_recording(recording);
  const size_t largest = find_largest(recording);
  PlacementPlan plan;
  for (size_t i = 0; i < recording.streams.size(); ++i) {
    const StreamHistory history(recording.streams[i]);
    const int64_t last = history.steps() - 1;
    const int64_t difference = history.first_difference(last - 1, last);
    if (difference >= 0 && i != largest) {
      plan.bands.push_back({plan.bytes, 0, {}, {PlannedStep{}}});  // keeps the streams' order
      continue;
    }
    if (difference >= 0) {
      throw InvalidInput("the last two recorded steps differ from request " +
                         std::to_string(difference) + " on (" +
                         std::to_string(history.length(last - 1)) + " and " +
                         std::to_string(history.length(last)) +
                         " requests). Fix: record steps of one shape, after warm-up");
    }
    int64_t lower_bound = 0;
    PlannedBand band =
        BandPlanner(history, options, i == largest ? options.residents : std::span<const int64_t>())
            .plan(lower_bound);
    band.offset = plan.bytes;
    for (PlannedSlot& slot : band.slots) slot.offset += band.offset;
    plan.bytes += band.bytes;
    plan.lower_bound_bytes += lower_bound;
    plan.bands.push_back(std::move(band));
  }
  return plan;
}

}  // namespace lowtide::hooks
