#include "hooks/placement_file.h"

#include <initializer_list>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/json_writer.h"

namespace lowtide::hooks {
namespace {

constexpr int kVersion = 1;
constexpr int kPerLine = 8;

std::string list_of(std::initializer_list<int64_t> values) {
  std::string text;
  for (const int64_t value : values) {
    text += text.empty() ? "[" : ", ";
    text += std::to_string(value);
  }
  return text + "]";
}

int32_t integer32_at(const JsonNode& entry, size_t index, int64_t least) {
  return static_cast<int32_t>(entry.at(index).integer(least, INT32_MAX));
}

PlannedBand& band_at(PlacementPlan& plan, const JsonNode& entry) {
  const int64_t band = entry.at(0).integer();
  if (band >= static_cast<int64_t>(plan.bands.size())) {
    entry.fail("names band " + std::to_string(band) + ", there are " +
               std::to_string(plan.bands.size()));
  }
  return plan.bands[static_cast<size_t>(band)];
}

void read_steps(PlacementPlan& plan, const JsonNode& steps, const JsonNode& requests) {
  size_t next = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const JsonNode entry = steps.at(i);
    PlannedStep step;
    step.mark_at = integer32_at(entry, 1, 0);
    const int64_t count = entry.at(2).integer(0, static_cast<int64_t>(requests.size() - next));
    for (int64_t end = static_cast<int64_t>(next) + count; static_cast<int64_t>(next) < end;
         ++next) {
      const JsonNode request = requests.at(next);
      step.requests.push_back({request.at(0).integer(0, PlacementPlan::kMostBytes),
                               integer32_at(request, 1, -1), integer32_at(request, 2, -1),
                               integer32_at(request, 3, 0)});
    }
    band_at(plan, entry).steps.push_back(std::move(step));
  }
  if (next != requests.size()) requests.fail("has more entries than the steps name");
}

}  // namespace

std::string to_json(const PlacementPlan& plan) {
  JsonWriter json("lowtide.placement", kVersion);
  json.member("arena_bytes", std::to_string(plan.bytes));
  json.member("lower_bound_bytes", std::to_string(plan.lower_bound_bytes));
  json.begin_list("bands");
  for (const PlannedBand& band : plan.bands) json.entry(list_of({band.offset, band.bytes}));
  json.end_list();
  json.begin_list("slots", kPerLine);
  for (size_t i = 0; i < plan.bands.size(); ++i) {
    for (const PlannedSlot& slot : plan.bands[i].slots) {
      json.entry(list_of({static_cast<int64_t>(i), slot.offset, slot.bytes}));
    }
  }
  json.end_list();
  json.begin_list("steps");
  for (size_t i = 0; i < plan.bands.size(); ++i) {
    for (const PlannedStep& step : plan.bands[i].steps) {
      json.entry(list_of(
          {static_cast<int64_t>(i), step.mark_at, static_cast<int64_t>(step.requests.size())}));
    }
  }
  json.end_list();
  json.begin_list("requests", kPerLine);
  for (const PlannedBand& band : plan.bands) {
    for (const PlannedStep& step : band.steps) {
      for (const PlannedRequest& request : step.requests) {
        json.entry(list_of({request.bytes, request.op, request.slot, request.slots}));
      }
    }
  }
  json.end_list();
  return std::move(json).finish();
}

PlacementPlan parse_placement(std::string_view text, std::string_view origin) {
  const JsonDocument document(text, "placement", origin);
  const JsonNode root = document.root(kVersion);
  PlacementPlan plan;
  plan.bytes = root.field("arena_bytes").integer(0, PlacementPlan::kMostBytes);
  plan.lower_bound_bytes = root.field("lower_bound_bytes").integer(0, PlacementPlan::kMostBytes);
  const JsonNode bands = root.field("bands");
  for (size_t i = 0; i < bands.size(); ++i) {
    PlannedBand& band = plan.bands.emplace_back();
    band.offset = bands.at(i).at(0).integer(0, PlacementPlan::kMostBytes);
    band.bytes = bands.at(i).at(1).integer(0, PlacementPlan::kMostBytes);
  }
  const JsonNode slots = root.field("slots");
  for (size_t i = 0; i < slots.size(); ++i) {
    const JsonNode entry = slots.at(i);
    band_at(plan, entry)
        .slots.push_back({entry.at(1).integer(0, PlacementPlan::kMostBytes),
                          entry.at(2).integer(0, PlacementPlan::kMostBytes)});
  }
  read_steps(plan, root.field("steps"), root.field("requests"));
  if (const std::string fault = find_fault(plan); !fault.empty()) document.fail(fault);
  return plan;
}

void save_placement(const std::filesystem::path& path, const PlacementPlan& plan) {
  write_whole_file(path, to_json(plan));
}

PlacementPlan load_placement(const std::filesystem::path& path) {
  return parse_placement(read_whole_file(path), path.string());
}

}  // namespace lowtide::hooks
