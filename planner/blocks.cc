#include "planner/blocks.h"

#include <algorithm>
#include <cstdint>

#include "core/hash.h"
#include "core/index.h"
#include "planner/op_kind.h"

namespace lowtide::planner {
namespace {

// Comparisons of two ops in one search for a period.
constexpr int64_t kPeriodWork = 200'000'000;

struct Run {  // ops [begin, begin + length) agree with those one period later
  size_t begin = 0, length = 0, period = 0;
  [[nodiscard]] size_t covered() const {
    return period == 0 ? 0 : (length + period) / period * period;
  }
};

class PeriodFinder {
 public:
  explicit PeriodFinder(const Trace& trace) {
    std::vector<OpId> last_reader(trace.storages.size(), kNone);
    for (size_t o = 0; o < trace.ops.size(); ++o) {
      const TraceOp& op = trace.ops[o];
      if (op.phase != Phase::forward) continue;
      ops_.push_back(static_cast<OpId>(o));
      Hasher hash;
      hash.add(op_kind(op.name)).add(op.inputs.size()).add(op.writes.size());
      for (const StorageRef& ref : op.inputs) {
        hash.add(trace.storages[at(ref.storage)].bytes);
        last_reader[at(ref.storage)] = static_cast<OpId>(o);
      }
      for (const StorageId s : op.outputs) hash.add(trace.storages[at(s)].bytes);
      signature_.push_back(hash.value());
    }
    crossing_.resize(trace.ops.size() + 1);
    for (size_t s = 0; s < trace.storages.size(); ++s) {
      const auto& writers = trace.storages[s].writers;
      if (writers.empty() || last_reader[s] <= writers.front()) continue;
      crossing_[at(writers.front()) + 1] += trace.storages[s].rounded_bytes;
      crossing_[at(last_reader[s]) + 1] -= trace.storages[s].rounded_bytes;
    }
    for (size_t o = 1; o < crossing_.size(); ++o) crossing_[o] += crossing_[o - 1];
  }

  std::vector<TraceBlock> find() {
    search(0, ops_.size(), ops_.size() / 4);
    std::sort(blocks_.begin(), blocks_.end(),
              [](const TraceBlock& a, const TraceBlock& b) { return a.begin < b.begin; });
    return std::move(blocks_);
  }

 private:
  // Marks the longest run of [begin, end) if it covers `least` ops, then what is left of it and
  // right of it (stages of another width).
  void search(size_t begin, size_t end, size_t least) {
    const Run best = longest(begin, end);
    if (best.covered() == 0 || best.covered() < least) return;
    const size_t run_end = best.begin + best.length + best.period;
    size_t first = best.begin;
    for (size_t shift = 1; shift < best.period && first + 2 * best.period <= run_end; ++shift) {
      const size_t cut = best.begin + shift;
      if (cut + 2 * best.period > run_end) break;
      if (bytes_before(cut + best.period) < bytes_before(first + best.period)) first = cut;
    }
    size_t next = first;
    for (; next + best.period <= run_end; next += best.period) {
      const OpId from = ops_[next];
      const OpId to = ops_[next + best.period - 1] + 1;
      // Ops of other phases in between (a second forward after a backward) are in no block.
      if (at(to - from) == best.period) blocks_.push_back({from, to});
    }
    const size_t others = std::max<size_t>(ops_.size() / 8, 6);
    if (first - begin >= others) search(begin, first, others);
    if (end - next >= others) search(next, end, others);
  }

  [[nodiscard]] Run longest(size_t begin, size_t end) const {
    const size_t count = end - begin;
    const auto most =
        static_cast<size_t>(kPeriodWork / static_cast<int64_t>(std::max<size_t>(count, 1)));
    Run best;
    for (size_t period = 1; period <= std::min(count / 2, most); ++period) {
      Run run;
      for (size_t i = begin; i + period <= end; ++i) {
        if (i + period < end && signature_[i] == signature_[i + period]) {
          if (run.length == 0) run = {i, 0, period};
          ++run.length;
          continue;
        }
        // A longer period has to cover clearly more: twice a block repeats as well.
        if (run.length >= period && run.covered() * 20 > best.covered() * 21) best = run;
        run.length = 0;
      }
    }
    return best;
  }

  [[nodiscard]] int64_t bytes_before(size_t index) const { return crossing_[at(ops_[index])]; }

  std::vector<OpId> ops_;            // of the forward
  std::vector<uint64_t> signature_;  // of each
  std::vector<int64_t> crossing_;    // bytes made before an op and read by it or later ones
  std::vector<TraceBlock> blocks_;
};

}  // namespace

std::vector<TraceBlock> find_blocks(const Trace& trace) { return PeriodFinder(trace).find(); }

}  // namespace lowtide::planner
