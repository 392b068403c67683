// What a user of the planner alone writes: bytes, a trace made by hand, a plan for a budget. The
// step has one saved tensor (4000 bytes) that must be dropped to fit a second one below 8 KiB.
#include <iostream>

#include "core/bytes.h"
#include "core/error.h"
#include "core/trace.h"
#include "planner/planner.h"

#ifdef NDEBUG
#error "built as Debug: only what includes torch may lose its asserts"
#endif

namespace {

lowtide::Trace tiny_trace() {
  using lowtide::EventKind;
  using lowtide::Phase;
  using lowtide::StorageKind;
  lowtide::Trace trace;
  trace.settings.name = "tiny";
  trace.settings.device = "cpu";

  const auto storage = [&](int64_t bytes, StorageKind kind, std::vector<lowtide::OpId> writers) {
    lowtide::TraceStorage result;
    result.bytes = result.rounded_bytes = bytes;
    result.kind = kind;
    result.resident = writers.empty();
    result.writers = std::move(writers);
    trace.storages.push_back(result);
  };
  storage(1000, StorageKind::parameter, {});
  storage(4000, StorageKind::activation, {0});
  storage(4000, StorageKind::activation, {1});
  storage(1000, StorageKind::gradient, {2});
  trace.storages[1].recomputable = true;

  const auto op = [&](Phase phase, int64_t ns, lowtide::StorageRef input,
                      lowtide::StorageId output) {
    lowtide::TraceOp result;
    result.name = "tiny::op";
    result.phase = phase;
    result.host_ns = ns;
    result.samples = 1;
    result.inputs = {input};
    result.outputs = {output};
    trace.ops.push_back(result);
    trace.step_ns += ns;
  };
  op(Phase::forward, 100, {0, 0}, 1);
  op(Phase::forward, 200, {0, 0}, 2);
  op(Phase::backward, 300, {1, 1}, 3);
  trace.saves.push_back({.storage = 1,
                         .version = 1,
                         .packed_by = 0,
                         .first_unpack = 2,
                         .last_unpack = 2,
                         .unpack_order = 0});
  trace.events = {{EventKind::op_begin, 0}, {EventKind::alloc, 1},    {EventKind::op_end, 0},
                  {EventKind::pack, 0},     {EventKind::release, 1},  {EventKind::op_begin, 1},
                  {EventKind::alloc, 2},    {EventKind::op_end, 1},   {EventKind::free, 2},
                  {EventKind::unpack, 0},   {EventKind::op_begin, 2}, {EventKind::alloc, 3},
                  {EventKind::op_end, 2},   {EventKind::release, 1},  {EventKind::drop_save, 0},
                  {EventKind::free, 1},     {EventKind::free, 3}};
  trace.validate();
  return trace;
}

}  // namespace

int main() {
  const lowtide::Trace trace = tiny_trace();
  const auto frontier = lowtide::planner::build_frontier(trace);
  const auto ample = lowtide::planner::make_plan(trace, frontier, lowtide::parse_bytes("1MiB"));
  const auto tight = lowtide::planner::make_plan(trace, frontier, lowtide::parse_bytes("8KiB"));
  std::cout << "ample: " << ample.decisions.size() << " dropped, peak "
            << ample.predicted.peak_requested_bytes << "\n"
            << "tight: " << tight.decisions.size() << " dropped, peak "
            << tight.predicted.peak_requested_bytes << ", recompute "
            << tight.predicted.recompute_ns << " ns\n";
  try {
    (void)lowtide::planner::make_plan(trace, frontier, 5000);
  } catch (const lowtide::OutOfBudget& error) {
    std::cout << "smallest: " << error.smallest_reachable_bytes() << "\n";
  }
}
