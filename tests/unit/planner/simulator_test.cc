// Small programs with answers worked out by hand, one rule of the simulator each.
#include "planner/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/error.h"
#include "planner/checker.h"
#include "planner/problem.h"
#include "support/synthetic_trace.h"

namespace lowtide::planner {
namespace {

using testing::SyntheticOp;
using testing::TraceBuilder;

constexpr Phase kBackward = Phase::backward;
constexpr StorageKind kGradient = StorageKind::gradient;

Decision drop(StorageId storage, bool keep = true) { return {storage, Action::drop, keep}; }

SimulationResult simulate(const Trace& trace, const std::vector<Decision>& decisions,
                          SimulationOptions options = {}) {
  trace.validate();
  const SimulationResult result =
      Simulator(trace).simulate(DecisionTable(trace, decisions), options);
  Plan plan;
  plan.trace_fingerprint = trace.fingerprint();
  plan.decisions = decisions;
  const CheckResult check = check_plan(trace, plan);  // predicts nothing: only its figures count
  EXPECT_EQ(check.peak_requested_bytes, result.peak_requested_bytes);
  EXPECT_EQ(check.recompute_ns, result.recompute_ns);
  return result;
}

// A backward node that reads one save: unpack, an op that makes and frees a gradient, release.
void read_back(TraceBuilder& b, SaveId save, StorageId storage, int64_t gradient_bytes,
               bool last = true) {
  b.unpack(save);
  const StorageId gradient = b.op1({.name = "backward",
                                    .reads = {storage},
                                    .creates = {gradient_bytes},
                                    .phase = kBackward,
                                    .kind = kGradient});
  b.free(gradient);
  b.release(storage);
  b.drop_save(save);
  if (last) b.free(storage);
}

TEST(Simulator, KeepAllReachesThePlainPeakAtItsEvent) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId y = b.op1({.reads = {w}, .creates = {1000}});
  const int32_t peak_event = b.last_event() - 1;  // begin, alloc, end
  b.free(y);
  b.free(b.op1({.reads = {w}, .creates = {900}}));
  const SimulationResult result = simulate(b.finish(), {}, {.record_live_set = true});
  EXPECT_EQ(result.peak_requested_bytes, 1100);
  EXPECT_EQ(result.peak_rounded_bytes, 512 + 1024);
  EXPECT_EQ(result.peak_event, peak_event);
  EXPECT_EQ(result.recompute_ns, 0);
  EXPECT_THAT(result.live_at_peak, ::testing::ElementsAre(y, w));
}

TEST(Simulator, DroppedStorageDiesAtReleaseAndReturnsAtUnpack) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId save = b.pack(a);
  b.release(a);
  b.free(b.op1({.reads = {w}, .creates = {300}}));
  read_back(b, save, a, 50);
  const Trace trace = b.finish();
  EXPECT_EQ(simulate(trace, {}).peak_requested_bytes, 100 + 1000 + 300);
  const SimulationResult dropped = simulate(trace, {drop(a)});
  EXPECT_EQ(dropped.peak_requested_bytes, 100 + 1000 + 50);
  EXPECT_EQ(dropped.recompute_ns, 10);
  EXPECT_EQ(dropped.replayed_ops, 1);
}

// y1 = f(w), y2 = f(y1), y3 = f(y2), all saved, read back in reverse.
struct Chain {
  Trace trace;
  std::vector<StorageId> y;
};
Chain three_links() {
  TraceBuilder b;
  StorageId x = b.resident(100);
  std::vector<StorageId> y;
  std::vector<SaveId> saves;
  for (const int64_t ns : {10, 20, 30}) {
    y.push_back(b.op1({.ns = ns, .reads = {x}, .creates = {1000}}));
    saves.push_back(b.pack(y.back()));
    if (y.size() > 1) b.release(x);
    x = y.back();
  }
  b.release(x);
  for (size_t i = 3; i-- > 0;) read_back(b, saves[i], y[i], 500);
  return {b.finish(), y};
}

TEST(Simulator, KeepBitHoldsTheWholeChainAndReplaysItOnce) {
  const Chain chain = three_links();
  const auto result = simulate(chain.trace, {drop(chain.y[0]), drop(chain.y[1]), drop(chain.y[2])});
  EXPECT_EQ(result.peak_requested_bytes, 100 + 3 * 1000 + 500);
  EXPECT_EQ(result.recompute_ns, 10 + 20 + 30);
  EXPECT_EQ(result.replayed_ops, 3);
}

TEST(Simulator, WithoutKeepBitTheChainIsReplayedForEachUnpack) {
  const Chain chain = three_links();
  const auto result = simulate(
      chain.trace, {drop(chain.y[0], false), drop(chain.y[1], false), drop(chain.y[2], false)});
  EXPECT_EQ(result.peak_requested_bytes, 100 + 2 * 1000);  // a link and its input
  EXPECT_EQ(result.recompute_ns, (10 + 20 + 30) + (10 + 20) + 10);
  EXPECT_EQ(result.replayed_ops, 6);
}

TEST(Simulator, ReplayStopsAtAKeptAncestor) {
  const Chain chain = three_links();
  const auto result = simulate(chain.trace, {drop(chain.y[2])});
  EXPECT_EQ(result.recompute_ns, 30);
  EXPECT_EQ(result.peak_requested_bytes, 100 + 3 * 1000 + 500);
}

TEST(Simulator, TwoReadersShareAKeptValueOnly) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId first = b.pack(a);
  const SaveId second = b.pack(a);
  b.release(a);
  read_back(b, first, a, 50, false);
  b.free(b.op1({.creates = {2000}, .phase = kBackward}));  // between the readers
  read_back(b, second, a, 50);
  const Trace trace = b.finish();
  const SimulationResult kept = simulate(trace, {drop(a, true)});
  EXPECT_EQ(kept.recompute_ns, 10);
  EXPECT_EQ(kept.peak_requested_bytes, 100 + 1000 + 2000);
  const SimulationResult again = simulate(trace, {drop(a, false)});
  EXPECT_EQ(again.recompute_ns, 20);
  EXPECT_EQ(again.peak_requested_bytes, 100 + 2000);
}

TEST(Simulator, OlderVersionIsRebuiltBesideTheLiveOne) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const StorageId y = b.op1({.ns = 20, .reads = {a}, .creates = {400}});
  const SaveId save_y = b.pack(y);
  b.release(y);
  b.op({.ns = 5, .writes = {a}});
  const SaveId save_a = b.pack(a);
  b.release(a);
  read_back(b, save_y, y, 1);
  read_back(b, save_a, a, 1);
  const Trace trace = b.finish();
  ASSERT_TRUE(trace.storages[static_cast<size_t>(a)].recomputable);
  const SimulationResult result = simulate(trace, {drop(y)});
  EXPECT_EQ(result.recompute_ns, 10 + 20);  // not the in-place write
  EXPECT_EQ(result.peak_requested_bytes, 100 + 1000 + 1000 + 400);
}

TEST(Simulator, InPlaceWritersAreReplayedIntoOneBuffer) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  b.op({.ns = 5, .writes = {a}});
  b.op({.ns = 7, .writes = {a}, .overwrites = true});
  const SaveId save = b.pack(a);
  b.release(a);
  read_back(b, save, a, 50);
  const SimulationResult result = simulate(b.finish(), {drop(a)});
  EXPECT_EQ(result.recompute_ns, 10 + 5 + 7);
  EXPECT_EQ(result.replayed_ops, 3);
  EXPECT_EQ(result.peak_requested_bytes, 100 + 1000 + 50);
}

TEST(Simulator, OneReplayServesReadersBeforeAndAfterAWrite) {
  // y reads a@1, then a is written, then z reads a@2 and y.
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const StorageId y = b.op1({.ns = 20, .reads = {a}, .creates = {400}});
  b.op({.ns = 5, .writes = {a}});
  const StorageId z = b.op1({.ns = 40, .reads = {a, y}, .creates = {300}});
  const SaveId save = b.pack(z);
  b.release(z);
  b.free(a);
  b.free(y);
  read_back(b, save, z, 1);
  const SimulationResult result = simulate(b.finish(), {drop(z)});
  EXPECT_EQ(result.recompute_ns, 10 + 20 + 5 + 40);
  EXPECT_EQ(result.replayed_ops, 4);
  EXPECT_EQ(result.peak_requested_bytes, 100 + 1000 + 400 + 300);
}

TEST(Simulator, AnOpThatWritesUnreadBytesStillNeedsTheirBuffer) {
  // One op fills `a` without reading it and makes y: replaying it for y rebuilds a's buffer.
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const StorageId y =
      b.op1({.ns = 20, .reads = {w}, .creates = {400}, .writes = {a}, .overwrites = true});
  b.free(a);
  const SaveId save = b.pack(y);
  b.release(y);
  read_back(b, save, y, 1);
  const SimulationResult result = simulate(b.finish(), {drop(y)});
  EXPECT_EQ(result.recompute_ns, 10 + 20);
  EXPECT_EQ(result.peak_requested_bytes, 100 + 1000 + 400);
}

TEST(Simulator, TemporariesOfAReplayedOpCountAndGo) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}, .temporaries = {700, 200}});
  const SaveId save = b.pack(a);
  b.release(a);
  const StorageId hold = b.op1({.creates = {50}});
  b.unpack(save);
  const int32_t unpack = b.last_event();
  const StorageId gradient = b.op1({.reads = {a}, .creates = {800}, .phase = kBackward});
  b.release(a), b.drop_save(save), b.free(a), b.free(gradient), b.free(hold);
  const SimulationResult result = simulate(b.finish(), {drop(a)});
  EXPECT_EQ(result.peak_requested_bytes, 100 + 50 + 1000 + 900);  // not the 800 of the gradient
  EXPECT_EQ(result.peak_event, unpack);
}

TEST(Simulator, WhatAnOpLeavesBehindIsFreedAtTheEndOfItsReplay) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}, .temporaries = {700}});
  const auto end = static_cast<size_t>(b.last_event());
  const SaveId save = b.pack(a);
  b.release(a);
  read_back(b, save, a, 800);
  Trace trace = b.finish();
  std::swap(trace.events[end - 1], trace.events[end]);  // freed after the op, by its caller
  EXPECT_EQ(simulate(trace, {drop(a)}).peak_requested_bytes, 100 + 1000 + 800);
}

TEST(Simulator, OutputAllocatedBeforeItsOpIsAllocatedByItsReplay) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const int32_t begin = b.last_event() + 1;
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId save = b.pack(a);
  b.release(a);
  b.free(b.op1({.creates = {20}}));
  read_back(b, save, a, 800);
  Trace trace = b.finish();
  std::swap(trace.events[static_cast<size_t>(begin)], trace.events[static_cast<size_t>(begin) + 1]);
  EXPECT_EQ(simulate(trace, {drop(a)}).peak_requested_bytes, 100 + 1000 + 800);
}

TEST(Simulator, UnneededOutputOfAReplayedOpIsFreedAtItsEnd) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const auto pair = b.op({.ns = 10, .reads = {w}, .creates = {1000, 600}});
  const SaveId save = b.pack(pair[0]);
  b.free(pair[1]);
  b.release(pair[0]);
  read_back(b, save, pair[0], 500);
  // 1600 while it is replayed, 1000 + 500 when it is read.
  EXPECT_EQ(simulate(b.finish(), {drop(pair[0])}).peak_requested_bytes, 100 + 1600);
}

TEST(Simulator, SavedSecondOutputIsKeptByItsSavesThoughNobodyAskedForIt) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const auto pair = b.op({.ns = 10, .reads = {w}, .creates = {1000, 600}});
  const SaveId save_0 = b.pack(pair[0]);
  const SaveId save_1 = b.pack(pair[1]);
  b.release(pair[0]);
  b.release(pair[1]);
  read_back(b, save_0, pair[0], 500);
  read_back(b, save_1, pair[1], 500);
  const Trace trace = b.finish();
  const SimulationResult kept = simulate(trace, {drop(pair[0]), drop(pair[1])});
  EXPECT_EQ(kept.recompute_ns, 10);
  EXPECT_EQ(kept.peak_requested_bytes, 100 + 1600 + 500);
  const SimulationResult again = simulate(trace, {drop(pair[0]), drop(pair[1], false)});
  EXPECT_EQ(again.recompute_ns, 20);
  EXPECT_EQ(again.peak_requested_bytes, 100 + 1600);
  EXPECT_EQ(simulate(trace, {drop(pair[0])}).recompute_ns, 10);
}

TEST(Simulator, ABufferStaysUntilTheLastReaderOfItsStorageAtAnyVersion) {
  // y reads a@1; a is written and stays; z reads a@2 (the live one) and y; t reads z.
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const StorageId y = b.op1({.ns = 20, .reads = {a}, .creates = {400}});
  b.op({.ns = 5, .writes = {a}});
  const StorageId z = b.op1({.ns = 40, .reads = {a, y}, .creates = {300}});
  const SaveId save = b.pack(z);
  b.release(z);
  b.free(y);
  read_back(b, save, z, 1);
  b.free(a);
  const SimulationResult result = simulate(b.finish(), {drop(z)});
  EXPECT_EQ(result.recompute_ns, 10 + 20 + 40);
  EXPECT_EQ(result.peak_requested_bytes, 100 + 1000 + 1000 + 400 + 300);
}

TEST(Simulator, StillOwnedAtUnpackMeansNoReplay) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId save = b.pack(a);
  read_back(b, save, a, 50);  // the first release comes after the unpack
  EXPECT_EQ(simulate(b.finish(), {drop(a)}).recompute_ns, 0);
}

TEST(Simulator, ALateFirstReleaseDropsForTheNextReader) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId first = b.pack(a);
  const SaveId second = b.pack(a);
  read_back(b, first, a, 50, false);
  b.free(b.op1({.creates = {2000}, .phase = kBackward}));
  read_back(b, second, a, 50);
  const SimulationResult result = simulate(b.finish(), {drop(a)});
  EXPECT_EQ(result.recompute_ns, 10);
  EXPECT_EQ(result.peak_requested_bytes, 100 + 2000);
}

TEST(Simulator, TargetWithoutKeepBitDiesAtItsRelease) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId first = b.pack(a);
  const SaveId second = b.pack(a);
  b.release(a);
  b.unpack(first);
  b.unpack(second);  // still in use: no second replay
  b.free(b.op1({.reads = {a}, .creates = {10}, .phase = kBackward}));
  b.release(a);
  b.free(b.op1({.creates = {2000}, .phase = kBackward}));
  b.drop_save(first), b.drop_save(second), b.free(a);
  const Trace trace = b.finish();
  EXPECT_EQ(simulate(trace, {drop(a, false)}).peak_requested_bytes, 100 + 2000);
  EXPECT_EQ(simulate(trace, {drop(a, false)}).recompute_ns, 10);
  EXPECT_EQ(simulate(trace, {drop(a, true)}).peak_requested_bytes, 100 + 1000 + 2000);
}

TEST(Simulator, KeptValueDiesWithItsLastSave) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId save = b.pack(a);
  b.release(a);
  b.unpack(save);
  b.free(b.op1({.reads = {a}, .creates = {10}, .phase = kBackward}));
  b.release(a);
  b.drop_save(save);
  b.free(b.op1({.creates = {2000}, .phase = kBackward}));  // a's plain free comes later
  b.free(a);
  EXPECT_EQ(simulate(b.finish(), {drop(a)}).peak_requested_bytes, 100 + 2000);
}

TEST(Simulator, KeptValueInUseOutlivesItsLastSave) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId save = b.pack(a);
  b.release(a);
  b.unpack(save);
  b.drop_save(save);  // the reader still holds it
  b.free(b.op1({.reads = {a}, .creates = {2000}, .phase = kBackward}));
  b.release(a);
  b.free(b.op1({.creates = {2500}, .phase = kBackward}));
  b.free(a);
  EXPECT_EQ(simulate(b.finish(), {drop(a)}).peak_requested_bytes, 100 + 1000 + 2000);
}

TEST(Simulator, KeepBitSparesAReplayInTheSecondBackward) {
  // retain_graph: every save is unpacked twice.
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId save = b.pack(a);
  b.release(a);
  for (int pass = 0; pass < 2; ++pass) {
    b.unpack(save);
    b.free(b.op1({.reads = {a}, .creates = {10}, .phase = kBackward}));
    b.release(a);
  }
  b.drop_save(save);
  b.free(a);
  const Trace trace = b.finish();
  EXPECT_EQ(simulate(trace, {drop(a, true)}).recompute_ns, 10);
  EXPECT_EQ(simulate(trace, {drop(a, false)}).recompute_ns, 20);
}

TEST(Simulator, StackedGraphsHoldTheFirstWhileTheSecondRuns) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}});
  const SaveId save_a = b.pack(a);
  b.release(a);
  const StorageId z = b.op1({.ns = 20, .reads = {w}, .creates = {1500}});
  const SaveId save_z = b.pack(z);
  b.release(z);
  read_back(b, save_a, a, 100);  // first graph's backward first
  read_back(b, save_z, z, 100);
  const Trace trace = b.finish();
  EXPECT_EQ(simulate(trace, {}).peak_requested_bytes, 100 + 1000 + 1500 + 100);
  EXPECT_EQ(simulate(trace, {drop(z)}).peak_requested_bytes, 100 + 1000 + 1500);
  EXPECT_EQ(simulate(trace, {drop(a)}).peak_requested_bytes, 100 + 1000 + 1500 + 100);
  EXPECT_EQ(simulate(trace, {drop(a), drop(z)}).peak_requested_bytes, 100 + 1500 + 100);
}

TEST(Simulator, MemoryEventsStartWithResidentsAndNameBlocksOnce) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId a = b.op1({.ns = 10, .reads = {w}, .creates = {1000}, .temporaries = {30}});
  const SaveId save = b.pack(a);
  b.release(a);
  read_back(b, save, a, 50);
  const Trace trace = b.finish();
  const int64_t placed = trace.storages[static_cast<size_t>(w)].rounded_bytes;
  ASSERT_GT(placed, 100);  // what the step found placed counts as placed
  const auto result = simulate(trace, {drop(a)}, {.record_memory_events = true});
  std::vector<std::pair<int32_t, int64_t>> events;
  for (const SimulatedMemoryEvent& e : result.memory_events) events.emplace_back(e.block, e.bytes);
  using E = std::pair<int32_t, int64_t>;
  EXPECT_THAT(events, ::testing::ElementsAre(E{0, placed}, E{1, 30}, E{2, 1000}, E{1, -30},
                                             E{2, -1000}, E{3, 30}, E{4, 1000}, E{3, -30}, E{5, 50},
                                             E{5, -50}, E{4, -1000}));
}

TEST(Simulator, ExcessSumsWhatEachAllocHasAboveTheLevel) {
  const Chain chain = three_links();
  // Rounded: 512 + 1024, 2048, 3072 in the forward, + 512 for gradients in the backward (3, 2, 1).
  const auto result = simulate(chain.trace, {}, {.level_bytes = 3000});
  EXPECT_EQ(result.peak_rounded_bytes, 512 + 3 * 1024 + 512);
  EXPECT_EQ(result.excess_bytes, (3584 - 3000) + (4096 - 3000) + (3072 - 3000));
}

TEST(DecisionTable, RoundTripsAndRefusesUnknownStorages) {
  const Chain chain = three_links();
  const std::vector<Decision> decisions = {drop(chain.y[0], false), drop(chain.y[2])};
  EXPECT_EQ(DecisionTable(chain.trace, decisions).to_decisions(), decisions);
  EXPECT_THROW(DecisionTable(chain.trace, {drop(99)}), InvalidInput);
  EXPECT_THROW(DecisionTable(chain.trace, {drop(-1)}), InvalidInput);
}

TEST(Problem, CandidatesAreSavedAndRecomputable) {
  TraceBuilder b;
  const StorageId w = b.resident(100);
  const StorageId saved = b.op1({.reads = {w}, .creates = {1000}});
  const StorageId unsaved = b.op1({.reads = {saved}, .creates = {10}});
  const StorageId opaque = b.op1({.reads = {unsaved}, .creates = {20}});
  const StorageId written = b.op1({.reads = {opaque}, .creates = {30}});
  b.never_drop(opaque, "written by an opaque kernel");
  for (const StorageId s : {w, saved, opaque, written}) b.pack(s);
  b.op({.writes = {written}});
  const Trace trace = b.finish();
  EXPECT_THAT(Problem(trace).candidates(), ::testing::ElementsAre(saved));
}

TEST(Problem, CutsOfAChainCrossOneStorageEach) {
  const Trace trace = testing::chain_trace(5);
  const Problem problem(trace);
  const auto cuts = problem.forward_cuts();
  ASSERT_EQ(cuts.size(), 4u);
  for (const Cut& cut : cuts) EXPECT_EQ(cut.crossing.size(), 1u);
}

}  // namespace
}  // namespace lowtide::planner
