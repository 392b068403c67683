#include "runtime/eviction.h"

#include <algorithm>
#include <vector>

#include "runtime/replay.h"
#include "runtime/storage_bytes.h"

namespace lowtide::runtime {
namespace {

constexpr int64_t kSmallestVictim = 1024;
constexpr int64_t kUnknownPrice = 1000;  // ns, for ops never measured

struct Candidate {
  std::shared_ptr<Tape> tape;
  int32_t slot = -1;
  double score = 0;
};

// Time to rebuild a slot from what is alive now.
class ChainPrice {
 public:
  explicit ChainPrice(Tape& tape) : tape_(tape), seen_op_(static_cast<size_t>(tape.records()), 0) {}

  int64_t of(int32_t target) {
    ++round_;
    int64_t ns = 0;
    stack_.assign(1, target);
    while (!stack_.empty()) {
      const int32_t current = stack_.back();
      stack_.pop_back();
      for (const int32_t writer : tape_.slot(current).writers) {
        if (seen_op_[static_cast<size_t>(writer)] == round_) {
          continue;
        }
        seen_op_[static_cast<size_t>(writer)] = round_;
        const OpRecord& record = tape_.record(writer);
        ns += record.ns > 0 ? record.ns : kUnknownPrice;
        for (const TensorRef& ref : record.tensors) {
          if (ref.kind == RefKind::slot && !tape_.slot(ref.index).alive()) {
            stack_.push_back(ref.index);
          }
        }
      }
    }
    return ns;
  }

 private:
  Tape& tape_;
  std::vector<int32_t> seen_op_;
  std::vector<int32_t> stack_;
  int32_t round_ = 0;
};

}  // namespace

int64_t Evictor::free_memory(int64_t need_bytes, int64_t request_bytes) noexcept {
  (void)request_bytes;
  const int64_t limit = memory_.limit();
  const int64_t wanted = need_bytes + (limit == hooks::TrainingMemory::kNoLimit ? 0 : limit / 32);
  std::vector<StoragePtr> victims;
  int64_t freed = 0;
  try {
    const InternalScope internal(*runtime_);
    {
      const std::lock_guard lock(runtime_->mutex);
      std::vector<Candidate> candidates;
      int64_t newest = 0;
      for (const std::shared_ptr<Tape>& tape : runtime_->tapes()) {
        for (int32_t i = 0; i < tape->slots(); ++i) {
          const Slot& slot = tape->slot(i);
          if (slot.holders > 0 && slot.held) {
            newest = std::max(newest, slot.pack_sequence);
          }
        }
      }
      for (const std::shared_ptr<Tape>& tape : runtime_->tapes()) {
        ChainPrice price(*tape);
        for (int32_t i = 0; i < tape->slots(); ++i) {
          const Slot& slot = tape->slot(i);
          if (!slot.sole_owner() || slot.bytes < kSmallestVictim || slot.opaque ||
              slot.pinned_by > 0 || !runtime_->budgeted(*slot.held)) {
            continue;
          }
          // Saved last is needed first: the distance runs backwards over the packs.
          const auto distance = static_cast<double>(newest - slot.pack_sequence + 1);
          candidates.push_back({tape, i,
                                static_cast<double>(price.of(i)) / static_cast<double>(slot.bytes) /
                                    std::max(1.0, distance)});
        }
      }
      std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return a.score < b.score || (a.score == b.score && a.slot < b.slot);
      });
      for (const Candidate& candidate : candidates) {
        if (freed >= wanted) {
          break;
        }
        Slot& slot = candidate.tape->slot(candidate.slot);
        if (!secure_recipe(*candidate.tape, candidate.slot)) {
          continue;
        }
        if (!slot.trusted) {
          runtime_->streams.wait_for(candidate.tape->written_on(slot));
          slot.digest = runtime_->digest_of_values(*slot.held);
          slot.has_digest = true;
        }
        if (runtime_->log != nullptr && slot.sid != kNone) {
          runtime_->poll_releases();
          runtime_->log->mark_evicted(slot.sid);
          runtime_->log->unmap(slot.held->data());
        }
        freed += slot.bytes;
        runtime_->counters.evictions += 1;
        runtime_->counters.evicted_bytes += slot.bytes;
        victims.push_back(std::move(slot.held));
        slot.held.reset();
      }
    }
    victims.clear();
  } catch (...) {
    // Nothing may leave an allocator hook; what was not freed stays saved.
    return freed;
  }
  return freed;
}

}  // namespace lowtide::runtime
