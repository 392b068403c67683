#include "hooks/placement_search.h"

#include <algorithm>
#include <utility>

namespace lowtide::hooks {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int32_t kMaxDepth = 20'000;  // frames of a few hundred bytes
constexpr int64_t kNodesPerClock = 64;
constexpr double kConflictDecay = 0.99;

std::vector<int32_t> by_first_section(std::vector<int32_t> open,
                                      const PlacementSections& sections) {
  std::stable_sort(open.begin(), open.end(), [&](int32_t a, int32_t b) {
    return sections.run(a).first < sections.run(b).first;
  });
  return open;
}

}  // namespace

PlacementSearch::PlacementSearch(std::span<const PlacedBuffer> buffers,
                                 const PlacementSections& sections, std::vector<int32_t> open,
                                 int64_t base)
    : buffers_(buffers),
      sections_(sections),
      all_(by_first_section(std::move(open), sections)),
      base_(base),
      members_(sections.count()),
      offsets_(buffers.size()),
      settled_(buffers.size()),
      open_bytes_(sections.count()),
      conflicts_(sections.count()),
      candidates_of_(sections.count()),
      is_touched_(sections.count()) {
  for (const int32_t buffer : all_) {
    PlacementSections::for_each_section(
        sections_.run(buffer), [&](int32_t section) { members_[section].push_back(buffer); });
  }
}

PlacementSearch::Outcome PlacementSearch::run(int64_t capacity, std::span<const int32_t> rank,
                                              const Limits& limits) {
  capacity_ = capacity;
  rank_ = rank;
  limits_ = limits;
  begin();
  bool possible = true;
  for (const int32_t buffer : all_) {
    possible = fits(top(buffer)) && possible;
    touch(buffer);
  }
  possible = touched_fit() && possible;
  if (possible && pack_parts(all_)) return Outcome::packed;
  return stopped_ ? Outcome::unfinished : Outcome::impossible;
}

void PlacementSearch::begin() {
  nodes_ = 0;
  least_possible_ = kNever;
  depth_ = 0;
  stopped_ = false;
  settled_order_.clear();
  lifts_.clear();
  std::fill(open_bytes_.begin(), open_bytes_.end(), 0);
  for (double& conflicts : conflicts_) conflicts *= kConflictDecay;
  for (const int32_t buffer : all_) {
    settled_[buffer] = false;
    offsets_[buffer] = align_up(base_, buffers_[buffer].alignment);
    PlacementSections::for_each_section(sections_.run(buffer), [&](int32_t section) {
      open_bytes_[section] += buffers_[buffer].bytes;
    });
  }
}

int64_t PlacementSearch::top(int32_t buffer) const {
  return offsets_[buffer] + buffers_[buffer].bytes;
}

// Open buffers fall into parts that share no section.
bool PlacementSearch::pack_parts(const Open& open) {
  std::vector<Open> parts;
  int32_t end = 0;
  for (const int32_t buffer : open) {
    if (!settled_[buffer]) end = std::max(end, sections_.run(buffer).wrap);
  }
  // What lives over the circle's end holds the first part and the last together.
  const bool wraps = end > 0;
  if (wraps) parts.emplace_back();
  for (const int32_t buffer : open) {
    if (settled_[buffer]) continue;
    const PlacementSections::Run& run = sections_.run(buffer);
    if (parts.empty() || run.first >= end) parts.emplace_back();
    parts.back().push_back(buffer);
    end = std::max(end, run.last + (run.wrap > 0 ? 1 : 0));  // those over the end stay together
  }
  if (wraps && parts.size() > 1) {
    parts.front().insert(parts.front().end(), parts.back().begin(), parts.back().end());
    parts.pop_back();
  }
  // A failure is found soonest in a small part.
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Open& a, const Open& b) { return a.size() < b.size(); });
  return std::all_of(parts.begin(), parts.end(), [this](const Open& part) { return pack(part); });
}

bool PlacementSearch::pack(const Open& open) {
  if (out_of_limits()) return false;
  int64_t address = kNever;
  for (const int32_t buffer : open) address = std::min(address, offsets_[buffer]);
  const Open here = candidates(open, hardest_section_at(open, address), address);
  const size_t settled = settled_order_.size(), lifts = lifts_.size();
  ++depth_;
  bool packed = false;
  for (size_t i = 0; i < here.size() && !packed && !stopped_; ++i) {
    packed = settle(here[i], open) && pack_parts(open);
    if (!packed) take_back(settled, lifts);
  }
  if (!packed && !stopped_) {
    packed = lift_off_floor(here, open) && pack_parts(open);
    if (!packed) take_back(settled, lifts);
  }
  --depth_;
  return packed;
}

// Of the sections that reach down to the address the one with the fewest candidates for the
// branches that have ended there; ties: the fullest, the first.
int32_t PlacementSearch::hardest_section_at(const Open& open, int64_t address) {
  std::fill(candidates_of_.begin(), candidates_of_.end(), 0);
  for (const int32_t buffer : open) {
    if (offsets_[buffer] != address) continue;
    PlacementSections::for_each_section(sections_.run(buffer),
                                        [&](int32_t section) { ++candidates_of_[section]; });
  }
  int32_t hardest = -1;
  double most = -1;
  for (int32_t section = 0; section < sections_.count(); ++section) {
    if (candidates_of_[section] == 0) continue;
    const double hardness = (1 + conflicts_[section]) / candidates_of_[section];
    if (hardness > most || (hardness == most && open_bytes_[section] > open_bytes_[hardest])) {
      hardest = section;
      most = hardness;
    }
  }
  return hardest;
}

// Open buffers that could lie at the address in the section, by rank; of equal ones the first.
PlacementSearch::Open PlacementSearch::candidates(const Open& open, int32_t section,
                                                  int64_t address) const {
  const PlacementSections::Run here{section, section + 1, 0};
  const auto equal = [this](int32_t a, int32_t b) {
    return sections_.run(a) == sections_.run(b) && buffers_[a].bytes == buffers_[b].bytes &&
           buffers_[a].alignment == buffers_[b].alignment;
  };
  Open found;
  for (const int32_t buffer : open) {
    if (offsets_[buffer] == address && sections_.run(buffer).overlaps(here) &&
        std::none_of(found.begin(), found.end(),
                     [&](int32_t other) { return equal(buffer, other); })) {
      found.push_back(buffer);
    }
  }
  std::sort(found.begin(), found.end(),
            [this](int32_t a, int32_t b) { return rank_[a] < rank_[b]; });
  return found;
}

// The buffer lies where it is; false where the others then do not fit.
bool PlacementSearch::settle(int32_t buffer, const Open& open) {
  settled_[buffer] = true;
  settled_order_.push_back(buffer);
  const PlacementSections::Run& run = sections_.run(buffer);
  PlacementSections::for_each_section(
      run, [&](int32_t section) { open_bytes_[section] -= buffers_[buffer].bytes; });
  const int64_t above = top(buffer);
  for (const int32_t other : open) {
    if (!settled_[other] && offsets_[other] < above && sections_.run(other).overlaps(run) &&
        !lift(other, align_up(above, buffers_[other].alignment))) {
      return false;
    }
  }
  return touched_fit();
}

// No candidate lies at its address: each rests on some other open buffer.
bool PlacementSearch::lift_off_floor(const Open& candidates, const Open& open) {
  for (const int32_t buffer : candidates) {
    int64_t lowest = kNever;
    for (const int32_t other : open) {
      if (other != buffer && !settled_[other] &&
          sections_.run(other).overlaps(sections_.run(buffer))) {
        lowest = std::min(lowest, top(other));
      }
    }
    if (lowest == kNever || !lift(buffer, align_up(lowest, buffers_[buffer].alignment))) {
      return false;
    }
  }
  return touched_fit();
}

void PlacementSearch::take_back(size_t settled, size_t lifts) {
  for (; lifts_.size() > lifts; lifts_.pop_back()) {
    offsets_[lifts_.back().buffer] = lifts_.back().from;
  }
  for (; settled_order_.size() > settled; settled_order_.pop_back()) {
    const int32_t buffer = settled_order_.back();
    settled_[buffer] = false;
    PlacementSections::for_each_section(sections_.run(buffer), [&](int32_t section) {
      open_bytes_[section] += buffers_[buffer].bytes;
    });
  }
  for (const int32_t section : touched_) is_touched_[section] = false;
  touched_.clear();
}

bool PlacementSearch::lift(int32_t buffer, int64_t address) {
  lifts_.push_back({buffer, offsets_[buffer]});
  offsets_[buffer] = address;
  touch(buffer);
  if (fits(top(buffer))) return true;
  const PlacementSections::Run& run = sections_.run(buffer);
  PlacementSections::for_each_section(
      run, [&](int32_t section) { conflicts_[section] += 1.0 / run.sections(); });
  return false;
}

void PlacementSearch::touch(int32_t buffer) {
  PlacementSections::for_each_section(sections_.run(buffer), [&](int32_t section) {
    if (!is_touched_[section]) touched_.push_back(section);
    is_touched_[section] = true;
  });
}

// Whether the open buffers of every touched section fit above the lowest of them.
bool PlacementSearch::touched_fit() {
  bool fit = true;
  for (const int32_t section : touched_) {
    is_touched_[section] = false;
    if (!fit) continue;
    int64_t lowest = kNever;
    for (const int32_t buffer : members_[section]) {
      if (!settled_[buffer]) lowest = std::min(lowest, offsets_[buffer]);
    }
    fit = lowest == kNever || fits(lowest + open_bytes_[section]);
    if (!fit) conflicts_[section] += 1;
  }
  touched_.clear();
  return fit;
}

bool PlacementSearch::fits(int64_t height) {
  if (height <= capacity_) return true;
  least_possible_ = std::min(least_possible_, height);
  return false;
}

bool PlacementSearch::out_of_limits() {
  ++nodes_;
  stopped_ = stopped_ || nodes_ > limits_.nodes || depth_ >= kMaxDepth ||
             (nodes_ % kNodesPerClock == 0 && std::chrono::steady_clock::now() >= limits_.deadline);
  return stopped_;
}

}  // namespace lowtide::hooks
