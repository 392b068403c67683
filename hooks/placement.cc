#include "hooks/placement.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <string_view>

#include "hooks/placement_greedy.h"
#include "hooks/placement_orders.h"
#include "hooks/placement_search.h"
#include "hooks/placement_sections.h"

namespace lowtide::hooks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 5> kGreedyOrders = {"SL", "AS", "LS", "PS", "BS"};
constexpr std::array<std::string_view, 6> kSearchOrders = {"LAP", "PAL", "PLA", "LB", "ASL", "SLP"};
// A placement is mostly found within a few nodes per buffer or not for long, so runs are short and
// many. Their lengths are those of Luby's sequence, which is never far from the best.
constexpr int64_t kNodesPerBuffer = 5;
constexpr int64_t kMaxIncidences = int64_t{1} << 25;  // 128 MiB of the search's lists

// 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ..., from i = 1.
int64_t luby(int64_t i) {
  int64_t size = 1;
  while (size < i) size = 2 * size + 1;
  while (size != i) {
    size /= 2;
    if (i > size) i -= size;
  }
  return (size + 1) / 2;
}

Clock::time_point deadline_after(double seconds) {
  constexpr double kLongest = 1e8;  // some years, and what the clock's counter can hold
  if (!(seconds < kLongest)) return Clock::time_point::max();
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Placer {
 public:
  Placer(std::span<const PlacedBuffer> buffers, const PlacementOptions& options)
      : buffers_(buffers),
        options_(options),
        deadline_(deadline_after(options.max_seconds)),
        sections_(buffers, options.period) {
    best_.offsets.resize(buffers.size());
    const int64_t resident_bytes = lay_residents();
    best_.height_bytes = std::numeric_limits<int64_t>::max();
    // Residents are alive in every section.
    best_.lower_bound_bytes = base_ + sections_.max_live_bytes() - resident_bytes;
  }

  Placement place() && {
    PlacementOrders orders(buffers_, options_.period, sections_, open_);
    for (const std::string_view keys : kGreedyOrders) {
      for (const GapRule rule : {GapRule::lowest, GapRule::tightest}) {
        std::vector<int64_t> offsets = best_.offsets;
        place_greedily(buffers_, sections_, orders.by_keys(keys), base_, rule, offsets);
        keep(std::move(offsets));
        if (done() || Clock::now() >= deadline_) return std::move(best_);
      }
    }
    if (sections_.incidences() <= kMaxIncidences) search(orders);
    return std::move(best_);
  }

 private:
  // What is always alive, at the bottom (the sum of its bytes); what has no bytes, anywhere.
  int64_t lay_residents() {
    int64_t bytes = 0;
    std::vector<int32_t> residents;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].bytes == 0) continue;
      (sections_.always_live(i) ? residents : open_).push_back(static_cast<int32_t>(i));
    }
    std::stable_sort(residents.begin(), residents.end(), [this](int32_t a, int32_t b) {
      return buffers_[a].alignment > buffers_[b].alignment;
    });
    for (const int32_t buffer : residents) {
      best_.offsets[buffer] = align_up(base_, buffers_[buffer].alignment);
      base_ = best_.offsets[buffer] + buffers_[buffer].bytes;
      bytes += buffers_[buffer].bytes;
    }
    return bytes;
  }

  void search(PlacementOrders& orders) {
    PlacementSearch search(buffers_, sections_, open_, base_);
    const int64_t shortest = kNodesPerBuffer * static_cast<int64_t>(open_.size()) + 100;
    std::vector<int32_t> rank(buffers_.size());
    for (int64_t round = 1; !done() && best_.nodes < options_.max_nodes; ++round) {
      const std::vector<int32_t> order = order_of(round, orders, search);
      for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<int32_t>(i);
      const int64_t nodes = std::min(luby(round) * shortest, options_.max_nodes - best_.nodes);
      const PlacementSearch::Outcome outcome =
          search.run(capacity_of(round), rank, {nodes, deadline_});
      best_.nodes += search.nodes();
      if (outcome == PlacementSearch::Outcome::packed) keep(search.offsets());
      if (outcome == PlacementSearch::Outcome::impossible) {
        best_.lower_bound_bytes = std::max(best_.lower_bound_bytes,
                                           std::min(search.least_possible(), best_.height_bytes));
      }
      if (Clock::now() >= deadline_) return;
    }
  }

  static std::vector<int32_t> order_of(int64_t round, PlacementOrders& orders,
                                       const PlacementSearch& search) {
    const auto fixed = static_cast<size_t>(round - 1);
    if (fixed < kSearchOrders.size()) return orders.by_keys(kSearchOrders[fixed]);
    return round % 2 == 0 ? orders.blend() : orders.blend(search.conflicts());
  }

  // Mostly all or nothing; every fourth run halves the way, lest nothing be gained.
  [[nodiscard]] int64_t capacity_of(int64_t round) const {
    if (round % 4 != 0) return goal();
    return std::max(goal(), std::midpoint(best_.lower_bound_bytes, best_.height_bytes));
  }

  [[nodiscard]] int64_t goal() const {
    return std::max(options_.capacity_bytes, best_.lower_bound_bytes);
  }
  [[nodiscard]] bool done() const { return best_.height_bytes <= goal(); }

  void keep(std::vector<int64_t> open_offsets) {
    int64_t height = base_;
    for (const int32_t buffer : open_) {
      height = std::max(height, open_offsets[buffer] + buffers_[buffer].bytes);
    }
    if (height >= best_.height_bytes) return;
    best_.height_bytes = height;
    for (const int32_t buffer : open_) best_.offsets[buffer] = open_offsets[buffer];
  }

  const std::span<const PlacedBuffer> buffers_;
  const PlacementOptions& options_;
  const Clock::time_point deadline_;
  const PlacementSections sections_;
  std::vector<int32_t> open_;  // neither resident nor empty
  int64_t base_ = 0;           // the residents' height
  Placement best_;
};

}  // namespace

Placement place(std::span<const PlacedBuffer> buffers, const PlacementOptions& options) {
  return Placer(buffers, options).place();
}

}  // namespace lowtide::hooks
