#include "hooks/placement_plan.h"

namespace lowtide::hooks {
namespace {

bool is_range(int64_t offset, int64_t bytes, int64_t begin, int64_t end) {
  return offset >= begin && bytes >= 0 && bytes <= PlacementPlan::kMostBytes &&
         offset <= end - bytes && offset % PlacementPlan::kGranule == 0 &&
         bytes % PlacementPlan::kGranule == 0;
}

std::string fault_of(const PlannedRequest& request, const PlannedBand& band) {
  if (request.bytes <= 0 || request.bytes > PlacementPlan::kMostBytes ||
      request.bytes % PlacementPlan::kGranule != 0) {
    return "has " + std::to_string(request.bytes) + " bytes. Fix: whole 512 B, more than 0";
  }
  if (request.slot < 0) return "";
  if (request.slots < 1 || request.slots > static_cast<int64_t>(band.slots.size()) - request.slot) {
    return "has slots that are not in its band. Fix: record and save the plan again";
  }
  for (int32_t i = 0; i < request.slots; ++i) {
    if (band.slots[static_cast<size_t>(request.slot) + static_cast<size_t>(i)].bytes <
        request.bytes) {
      return "has a slot that is too small. Fix: record and save the plan again";
    }
  }
  return "";
}

std::string fault_of(const PlannedBand& band) {
  if (band.steps.empty()) return "has no step. Fix: at least one";
  for (const PlannedSlot& slot : band.slots) {
    if (!is_range(slot.offset, slot.bytes, band.offset, band.offset + band.bytes)) {
      return "has a slot outside of it. Fix: record and save the plan again";
    }
  }
  for (const PlannedStep& step : band.steps) {
    if (step.mark_at < 0 || step.mark_at > static_cast<int64_t>(step.requests.size())) {
      return "has a step whose mark is not inside it. Fix: 0 to the number of its requests";
    }
    for (size_t i = 0; i < step.requests.size(); ++i) {
      const std::string fault = fault_of(step.requests[i], band);
      if (!fault.empty()) return "request " + std::to_string(i) + " " + fault;
    }
  }
  return "";
}

}  // namespace

std::string find_fault(const PlacementPlan& plan) {
  if (plan.bytes <= 0 || plan.bytes > PlacementPlan::kMostBytes ||
      plan.bytes % PlacementPlan::kGranule != 0) {
    return std::to_string(plan.bytes) + " bytes in all. Fix: whole 512 B, more than 0";
  }
  int64_t begin = 0;
  for (size_t i = 0; i < plan.bands.size(); ++i) {
    const PlannedBand& band = plan.bands[i];
    const std::string name = "band " + std::to_string(i) + " ";
    if (!is_range(band.offset, band.bytes, begin, plan.bytes)) {
      return name +
             "does not lie above the one before it, inside of the arena. Fix: record and "
             "save the plan again";
    }
    begin = band.offset + band.bytes;
    const std::string fault = fault_of(band);
    if (!fault.empty()) return name + fault;
  }
  return plan.bands.empty() ? "no band. Fix: at least one" : "";
}

}  // namespace lowtide::hooks
