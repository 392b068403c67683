#include <new>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/json_writer.h"
#include "core/trace_file.h"

namespace lowtide {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kActions = static_cast<int>(Action::drop) + 1;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json account_json(const BudgetAccount& a) {
  return {{"resident_bytes", a.resident_bytes}, {"activation_bytes", a.activation_bytes},
          {"rounding_bytes", a.rounding_bytes}, {"placement_bytes", a.placement_bytes},
          {"outside_bytes", a.outside_bytes},   {"reserve_bytes", a.reserve_bytes},
          {"gradient_bytes", a.gradient_bytes}};
}

Json predicted_json(const Predicted& p) {
  return {{"peak_requested_bytes", p.peak_requested_bytes},
          {"peak_rounded_bytes", p.peak_rounded_bytes},
          {"peak_reserved_bytes", p.peak_reserved_bytes},
          {"step_ns", p.step_ns},
          {"recompute_ns", p.recompute_ns},
          {"memory_ns", p.memory_ns},
          {"watch_ns", p.watch_ns},
          {"replayed_ops", p.replayed_ops},
          {"peak_event", p.peak_event == kNone ? Json(nullptr) : Json(p.peak_event)},
          {"live_at_peak", p.live_at_peak}};
}

Json measured_json(const Measured& m) {
  return {{"verified", m.verified},
          {"compared", m.compared},
          {"mismatched", m.mismatched},
          {"peak_requested_bytes", m.peak_requested_bytes},
          {"peak_rounded_bytes", m.peak_rounded_bytes},
          {"peak_reserved_bytes", m.peak_reserved_bytes},
          {"step_ns", m.step_ns}};
}

Json bound_json(const Bound& b) {
  return {{"lower_bound_ns", b.lower_bound_ns < 0 ? Json(nullptr) : Json(b.lower_bound_ns)},
          {"gap", b.gap < 0 ? Json(nullptr) : Json(b.gap)},
          {"space", b.space.empty() ? Json(nullptr) : Json(b.space)}};
}

BudgetAccount read_account(const JsonNode& node) {
  BudgetAccount a;
  a.resident_bytes = node.field("resident_bytes").integer();
  a.activation_bytes = node.field("activation_bytes").integer();
  a.rounding_bytes = node.field("rounding_bytes").integer();
  a.placement_bytes = node.field("placement_bytes").integer();
  a.outside_bytes = node.field("outside_bytes").integer();
  a.reserve_bytes = node.field("reserve_bytes").integer();
  a.gradient_bytes = node.field("gradient_bytes").integer();
  return a;
}

Predicted read_predicted(const JsonNode& node) {
  Predicted p;
  p.peak_requested_bytes = node.field("peak_requested_bytes").integer();
  p.peak_rounded_bytes = node.field("peak_rounded_bytes").integer();
  p.peak_reserved_bytes = node.field("peak_reserved_bytes").integer();
  p.step_ns = node.field("step_ns").integer();
  p.recompute_ns = node.field("recompute_ns").integer(INT64_MIN);
  p.memory_ns = node.field("memory_ns").integer();
  if (node.has("watch_ns")) p.watch_ns = node.field("watch_ns").integer();
  p.replayed_ops = node.field("replayed_ops").integer();
  p.peak_event = node.field("peak_event").id_or_null();
  const JsonNode live = node.field("live_at_peak");
  for (size_t i = 0; i < live.size(); ++i) p.live_at_peak.push_back(live.at(i).integer32());
  return p;
}

Measured read_measured(const JsonNode& node) {
  Measured m;
  m.verified = node.field("verified").boolean();
  m.compared = node.field("compared").integer();
  m.mismatched = node.field("mismatched").integer();
  m.peak_requested_bytes = node.field("peak_requested_bytes").integer();
  m.peak_rounded_bytes = node.field("peak_rounded_bytes").integer();
  m.peak_reserved_bytes = node.field("peak_reserved_bytes").integer();
  m.step_ns = node.field("step_ns").integer();
  return m;
}

Bound read_bound(const JsonNode& node) {
  Bound b;
  const JsonNode bound = node.field("lower_bound_ns"), gap = node.field("gap");
  const JsonNode space = node.field("space");
  if (!bound.is_null()) b.lower_bound_ns = bound.integer();
  if (!gap.is_null()) b.gap = gap.number();
  if (!space.is_null()) b.space = space.text();
  return b;
}

Decision read_decision(const JsonNode& node) {
  return {node.field("storage").integer32(), node.field("action").one_of<Action>(kActions),
          node.field("keep_after_recompute").boolean()};
}

Plan read_root(const JsonDocument& document) {
  const JsonNode root = document.root(kPlanFormatVersion);
  Plan plan;
  plan.trace_fingerprint = root.field("trace_fingerprint").hash();
  plan.strategy = root.field("strategy").text();
  plan.budget_bytes = root.field("budget_bytes").integer();
  plan.account = read_account(root.field("account"));
  plan.predicted = read_predicted(root.field("predicted"));
  plan.measured = read_measured(root.field("measured"));
  plan.bound = read_bound(root.field("bound"));
  const JsonNode decisions = root.field("decisions");
  plan.decisions.reserve(decisions.size());
  for (size_t i = 0; i < decisions.size(); ++i) {
    plan.decisions.push_back(read_decision(decisions.at(i)));
  }
  try {
    plan.validate();
  } catch (const FileError& error) {
    throw FileError("plan file '" + document.origin() + "': " + error.message());
  }
  return plan;
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  JsonWriter writer("lowtide.plan", kPlanFormatVersion);
  writer.member("trace_fingerprint", dump(fingerprint_text(plan.trace_fingerprint)));
  writer.member("strategy", dump(plan.strategy));
  writer.member("budget_bytes", std::to_string(plan.budget_bytes));
  writer.member("account", dump(account_json(plan.account)));
  writer.member("predicted", dump(predicted_json(plan.predicted)));
  writer.member("measured", dump(measured_json(plan.measured)));
  writer.member("bound", dump(bound_json(plan.bound)));
  writer.begin_list("decisions");
  for (const Decision& d : plan.decisions) {
    writer.entry(dump({{"storage", d.storage},
                       {"action", to_string(d.action)},
                       {"keep_after_recompute", d.keep_after_recompute}}));
  }
  writer.end_list();
  return std::move(writer).finish();
}

Plan plan_from_json(std::string_view text, std::string_view origin) {
  try {
    return read_root(JsonDocument(text, "plan", origin));
  } catch (const std::bad_alloc&) {
    throw FileError("plan '" + std::string(origin) +
                    "' needs more memory than there is. Fix: free memory and try again");
  }
}

void write_plan(const Plan& plan, const std::filesystem::path& path) {
  plan.validate();
  write_whole_file(path, plan_to_json(plan));
}

Plan read_plan(const std::filesystem::path& path) {
  return plan_from_json(read_whole_file(path), path.string());
}

FileKind file_kind(const std::filesystem::path& path) {
  const JsonDocument document(read_whole_file(path), "file", path.string());
  const JsonNode format = document.root().field("format");
  if (format.text() == "lowtide.trace") return FileKind::trace;
  if (format.text() == "lowtide.plan") return FileKind::plan;
  if (format.text() == "remat-instance") return FileKind::instance;
  format.fail("must be \"lowtide.trace\", \"lowtide.plan\" or \"remat-instance\"");
}

}  // namespace lowtide
