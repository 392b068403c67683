// One readable screen about a trace or a plan.
#pragma once

#include <iosfwd>
#include <string>

#include "core/plan.h"
#include "core/trace.h"

namespace lowtide::cli {

void print_trace(std::ostream& out, const Trace& trace);
[[nodiscard]] std::string trace_summary_json(const Trace& trace);

// `trace` may be null; with it (it must be the plan's), sizes, times and names are shown.
void print_plan(std::ostream& out, const Plan& plan, const Trace* trace);

}  // namespace lowtide::cli
