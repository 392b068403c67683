#include "hooks/placement_session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "core/error.h"
#include "unit/hooks/placement_trainer.h"

namespace lowtide::hooks {
namespace {

// Streams as numbers; events are complete when the test says so.
class EventsOnHost final : public DeviceBackend {
 public:
  void* acquire(size_t) noexcept override { return nullptr; }
  void give_back(void*, size_t) noexcept override {}
  Recorded record(DeviceStream, DeviceEvent& event) noexcept override {
    event = reinterpret_cast<DeviceEvent>(++recorded);
    return Recorded::yes;
  }
  bool complete(DeviceEvent event) noexcept override {
    return reinterpret_cast<int64_t>(event) <= completed;
  }
  void wait(DeviceEvent) noexcept override {}
  void recycle(DeviceEvent) noexcept override {}
  void wait_for_stream(DeviceStream) noexcept override {}
  void wait_for_device() noexcept override {}
  bool capturing(DeviceStream) noexcept override { return false; }
  DeviceMemory memory() noexcept override { return {}; }
  [[nodiscard]] const char* name() const noexcept override { return "host"; }

  std::atomic<int64_t> recorded{0};
  std::atomic<int64_t> completed{0};
};

// Judges by itself whether two blocks ever share a byte.
class Overlaps final : public ArenaObserver {
 public:
  void on_allocated(const ArenaBlock& block) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto next = held_.lower_bound(block.base);
    if (next != held_.end() && next->first < block.base + block.bytes) ++overlaps;
    if (next != held_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second > block.base) ++overlaps;
    }
    held_[block.base] = block.bytes;
    ++allocated;
  }
  void on_freed(const ArenaBlock&) noexcept override { ++freed; }
  void on_completed(const ArenaBlock& block) noexcept override {
    const std::lock_guard lock(mutex_);
    held_.erase(block.base);
  }
  [[nodiscard]] size_t held() const {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }

  std::atomic<int> overlaps{0}, allocated{0}, freed{0};

 private:
  mutable std::mutex mutex_;
  std::map<std::byte*, size_t> held_;
};

// A program's allocator: the session first, then addresses that no arena has.
class PlacementSessionTest : public testing::Test {
 protected:
  void* allocate(int64_t bytes, DeviceStream stream = nullptr) {
    const auto count = static_cast<size_t>(bytes);
    if (void* const address = session_.allocate(count, stream, -1)) return address;
    ++native_;
    void* const address = reinterpret_cast<void*>(uint64_t{1} << 60 | (next_ += 64));
    session_.served_elsewhere(address, count, stream, -1);
    return address;
  }
  void free(void* address) {
    if (!session_.owns(address)) return session_.freed_elsewhere(address);
    EXPECT_TRUE(session_.free(address));
  }
  PlacementTrainer trainer(DeviceStream stream = nullptr) {
    return {[this](int64_t bytes, DeviceStream on) { return allocate(bytes, on); },
            [this](void* address) { free(address); }, stream};
  }
  // What a run of a whole program leaves behind.
  PlacementPlan plan_of_a_run() {
    session_.start_recording();
    PlacementTrainer program = trainer();
    program.build();
    for (int i = 0; i < 4; ++i) {
      session_.mark();
      program.step();
    }
    session_.mark();
    return plan_program(session_.take_recording());
  }
  void attach() {
    auto backend = std::make_unique<EventsOnHost>();
    events_ = backend.get();
    session_.attach(reinterpret_cast<void*>(kBase), std::move(backend));
  }
  void load(PlacementPlan plan) {
    session_.wait_for_memory(std::move(plan));
    attach();
    native_ = 0;
  }
  void TearDown() override { EXPECT_EQ(overlaps_.overlaps, 0); }
  PlacementCounts counts() { return session_.stats().counts; }

  static constexpr uint64_t kBase = uint64_t{1} << 40;
  Overlaps overlaps_;
  PlacementSession session_{overlaps_};
  EventsOnHost* events_ = nullptr;
  int64_t native_ = 0;
  uint64_t next_ = 0;
};

TEST_F(PlacementSessionTest, ALoadedPlanServesEveryRequestOfTheSameProgram) {
  load(plan_of_a_run());
  {
    PlacementTrainer program = trainer();
    program.build();
    for (int i = 0; i < 10; ++i) {
      session_.mark();
      program.step();
    }
    session_.mark();
    EXPECT_EQ(native_, 0);
    const PlacementCounts seen = counts();
    EXPECT_EQ(seen.hits, seen.requests);
    EXPECT_GT(seen.requests, 500);
    EXPECT_EQ(seen.steps, 11);
    EXPECT_EQ(seen.bad_steps, 0);
  }
  EXPECT_EQ(overlaps_.held(), 0U);
  EXPECT_EQ(overlaps_.allocated, overlaps_.freed);
}

TEST_F(PlacementSessionTest, AMarkBeforeTheFirstRequestCounts) {
  session_.start_recording();
  for (int i = 0; i < 3; ++i) {
    session_.mark();
    free(allocate(1000));
  }
  session_.mark();
  session_.wait_for_memory(plan_program(session_.take_recording()));
  session_.mark();
  attach();
  free(allocate(1000));
  EXPECT_EQ(counts().hits, 1);
}

TEST_F(PlacementSessionTest, AProbeShadowsAStepBeforeItIsReady) {
  PlacementTrainer program = trainer();
  program.build();
  program.step();
  session_.start_recording();
  session_.mark();
  for (int i = 0; i < 2; ++i) {
    program.step();
    session_.mark();
  }
  session_.shadow(plan_program(session_.take_recording(), {.whole_program = false}));
  EXPECT_EQ(session_.state(), PlacementState::shadow);
  program.step(100, true);
  session_.mark();
  EXPECT_EQ(session_.state(), PlacementState::shadow) << "an op more than planned";
  program.step();
  session_.mark();
  ASSERT_EQ(session_.state(), PlacementState::ready);
  EXPECT_EQ(overlaps_.allocated, 0);
  attach();
  native_ = 0;
  program.step();
  session_.mark();
  EXPECT_EQ(native_, 0);
  EXPECT_EQ(counts().hits, counts().requests);
}

TEST_F(PlacementSessionTest, AStepOutOfShapeCostsItselfAndNoOther) {
  load(plan_of_a_run());
  PlacementTrainer program = trainer();
  program.build();
  const auto step = [&](int64_t scale, bool extra) {
    const PlacementCounts before = counts();
    program.step(scale, extra);
    session_.mark();
    return counts().hits - before.hits;
  };
  session_.mark();
  step(100, false);
  const int64_t whole = step(100, false);
  const int64_t larger = step(125, false);
  EXPECT_LT(larger, whole);
  EXPECT_GT(native_, 0) << "what does not fit goes elsewhere";
  EXPECT_EQ(step(100, false), whole);
  native_ = 0;
  EXPECT_GE(step(100, true), whole - 1) << "one extra request is not planned, the others are";
  EXPECT_EQ(step(100, false), whole);
  program.evaluate();
  session_.mark();
  EXPECT_EQ(step(100, false), whole);
  EXPECT_EQ(native_, 0) << "an evaluation fits into the idle arena";
  EXPECT_EQ(counts().bad_steps, 1);
  EXPECT_EQ(session_.state(), PlacementState::engaged);
}

TEST_F(PlacementSessionTest, AnotherProgramDisengagesAndItsMemoryIsStillUsed) {
  load(plan_of_a_run());
  for (int i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < 9; ++k) free(allocate(5000 + 4096 * k));
    session_.mark();
  }
  EXPECT_EQ(session_.state(), PlacementState::gaps);
  EXPECT_EQ(session_.stats().reason, "the steps were not as planned");
  void* const block = allocate(5000);
  EXPECT_TRUE(session_.owns(block));
  EXPECT_EQ(session_.detach(true, false).base, nullptr) << "a block lives there";
  free(block);
  EXPECT_EQ(session_.detach(true, false).base, reinterpret_cast<void*>(kBase));
  EXPECT_EQ(session_.state(), PlacementState::off);
  EXPECT_FALSE(session_.owns(block));
  EXPECT_FALSE(session_.owns(allocate(5000)));
}

TEST_F(PlacementSessionTest, AnEngagedArenaGoesOnlyUnderPressure) {
  load(plan_of_a_run());
  EXPECT_EQ(session_.detach(true, false).base, nullptr);
  EXPECT_NE(session_.detach(false, true).base, nullptr);
  EXPECT_EQ(session_.stats().reason, "its memory was given back");
}

TEST_F(PlacementSessionTest, ABlockThatAnotherStreamUsesWaitsForItsEvent) {
  load(plan_of_a_run());
  const DeviceStream side = &native_;
  void* const block = allocate(96 * 1024);
  EXPECT_TRUE(session_.use_on(block, nullptr));
  EXPECT_TRUE(session_.use_on(block, side));
  EXPECT_TRUE(session_.use_on(block, side));
  free(block);
  EXPECT_EQ(events_->recorded, 1) << "one stream, and not its own";
  EXPECT_EQ(overlaps_.held(), 1U);
  EXPECT_FALSE(session_.free(block)) << "freed already";
  EXPECT_EQ(session_.detach(false, false).base, nullptr);
  events_->completed = 1;
  free(allocate(120 * 1024));
  EXPECT_EQ(overlaps_.held(), 0U);
}

TEST_F(PlacementSessionTest, AStreamThatThePlanDoesNotKnowGoesElsewhere) {
  load(plan_of_a_run());
  void* const mine = allocate(96 * 1024);
  void* const others = allocate(96 * 1024, &native_);
  EXPECT_TRUE(session_.owns(mine));
  EXPECT_FALSE(session_.owns(others));
  free(mine);
}

TEST_F(PlacementSessionTest, APlanIsRefusedWhileAnotherIsInForce) {
  const PlacementPlan plan = plan_of_a_run();
  load(plan);
  EXPECT_THROW(session_.shadow(plan), InvalidInput);
  EXPECT_THROW(session_.wait_for_memory(PlacementPlan{}), InvalidInput);
}

// Requests that the plan knows, in any order and with any life.
TEST_F(PlacementSessionTest, AWrongPlanCostsBytesAndNothingElse) {
  load(plan_of_a_run());
  std::mt19937 random(11);
  std::vector<void*> held;
  for (int i = 0; i < 50'000; ++i) {
    if (held.size() < 60 && random() % 2 == 0) {
      held.push_back(allocate((96 + 24 * static_cast<int64_t>(random() % 3)) * 1024));
      if (random() % 8 == 0 && session_.owns(held.back())) session_.use_on(held.back(), &random);
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      free(held.back());
      held.pop_back();
    }
    if (random() % 4 == 0) events_->completed = events_->recorded.load();
    if (random() % 200 == 0) session_.mark();
  }
  while (!held.empty()) {
    free(held.back());
    held.pop_back();
  }
  events_->completed = events_->recorded.load();
  session_.mark();
  EXPECT_EQ(overlaps_.held(), 0U);
  EXPECT_GT(overlaps_.allocated, 1000);
}

TEST_F(PlacementSessionTest, ThreadsAndStreamsNeverMeetInOneBlock) {
  session_.start_recording();
  std::vector<int> streams(4);
  {
    std::vector<std::unique_ptr<PlacementTrainer>> programs;
    for (int& stream : streams) {
      programs.push_back(std::make_unique<PlacementTrainer>(
          [this](int64_t bytes, DeviceStream on) { return allocate(bytes, on); },
          [this](void* address) { free(address); }, &stream));
      programs.back()->build();
    }
    for (int i = 0; i < 4; ++i) {
      session_.mark();
      for (auto& program : programs) program->step();
    }
    session_.mark();
  }
  load(plan_program(session_.take_recording(), {.max_nodes = 500}));
  std::atomic<int64_t> elsewhere{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([this, t, &streams, &elsewhere] {
      std::mt19937 random(t);
      const DeviceStream stream = &streams[t % 4];
      PlacementTrainer program(
          [&](int64_t bytes, DeviceStream on) {
            void* address = session_.allocate(static_cast<size_t>(bytes), on, -1);
            if (address == nullptr) {
              address = reinterpret_cast<void*>(uint64_t{1} << 60 | uint64_t(++elsewhere) << 6);
            }
            return address;
          },
          [&](void* address) {
            if (!session_.owns(address)) return;
            if (random() % 16 == 0) session_.use_on(address, &streams[random() % 4]);
            if (random() % 16 == 0) events_->completed = events_->recorded.load();
            EXPECT_TRUE(session_.free(address));
          },
          stream);
      program.build();
      for (int i = 0; i < 40; ++i) {
        program.step(100 + 25 * (random() % 8 == 0));
        if (t == 0) session_.mark();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  events_->completed = events_->recorded.load();
  session_.mark();
  EXPECT_EQ(overlaps_.held(), 0U);
  EXPECT_EQ(overlaps_.allocated, overlaps_.freed);
  EXPECT_GT(counts().hits + counts().gap_fallbacks, 1000);
}

}  // namespace
}  // namespace lowtide::hooks
