#include "hooks/placement_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "hooks/placement_file.h"
#include "hooks/placement_follower.h"
#include "unit/hooks/placement_trainer.h"

namespace lowtide::hooks {
namespace {

// Feeds a recorder, and counts what is live without it.
class Recorded {
 public:
  Recorded() { recorder.start(); }
  void* allocate(int64_t bytes, DeviceStream stream = nullptr) {
    void* const address = reinterpret_cast<void*>(next_ += 64);
    recorder.allocated(address, static_cast<size_t>(bytes), stream, -1);
    sizes_[address] = (bytes + 511) / 512 * 512;
    live_ += sizes_[address];
    peak = std::max(peak, live_);
    return address;
  }
  void free(void* address) {
    recorder.freed(address);
    live_ -= sizes_[address];
    sizes_.erase(address);
  }
  PlacementTrainer trainer(DeviceStream stream = nullptr) {
    return {[this](int64_t bytes, DeviceStream on) { return allocate(bytes, on); },
            [this](void* address) { free(address); }, stream};
  }

  PlacementRecorder recorder;
  int64_t peak = 0;

 private:
  uint64_t next_ = 0;
  int64_t live_ = 0;
  std::map<void*, int64_t> sizes_;
};

std::string refusal(const Recording& recording, const ProgramOptions& options = {}) {
  try {
    (void)plan_program(recording, options);
  } catch (const InvalidInput& error) {
    return error.message();
  }
  return "";
}

Recording record_training(Recorded& recorded, int steps) {
  Recording taken;
  PlacementTrainer trainer = recorded.trainer();
  trainer.build();
  for (int i = 0; i < steps; ++i) {
    recorded.recorder.mark();
    trainer.step();
  }
  recorded.recorder.mark();
  return recorded.recorder.take();
}

TEST(PlacementProgram, AWholeProgramFitsItsPeak) {
  Recorded recorded;
  const PlacementPlan plan = plan_program(record_training(recorded, 4));
  EXPECT_EQ(find_fault(plan), "");
  ASSERT_EQ(plan.bands.size(), 1U);
  EXPECT_EQ(plan.bands[0].steps.size(), 3U) << "building, the first step, and the one that repeats";
  EXPECT_GE(plan.bytes, plan.lower_bound_bytes);
  EXPECT_GE(plan.bytes, recorded.peak);
  EXPECT_LE(plan.bytes, recorded.peak + recorded.peak / 100);
}

TEST(PlacementProgram, ASteadyStepAloneLeavesOutWhatWasThereBefore) {
  Recorded recorded;
  const PlacementPlan plan = plan_program(record_training(recorded, 4), {.whole_program = false});
  ASSERT_EQ(plan.bands[0].steps.size(), 1U);
  EXPECT_LT(plan.bytes, recorded.peak);
  EXPECT_EQ(find_fault(plan), "");
}

TEST(PlacementProgram, ResidentsAreAStepOfTheirOwn) {
  Recorded recorded;
  const Recording recording = record_training(recorded, 3);
  const PlacementPlan alone = plan_program(recording, {.whole_program = false});
  const std::vector<int64_t> residents = {1000, 4096};
  const PlacementPlan plan =
      plan_program(recording, {.whole_program = false, .residents = residents});
  ASSERT_EQ(plan.bands[0].steps.size(), 2U);
  EXPECT_EQ(plan.bands[0].steps[0].requests.size(), 2U);
  EXPECT_EQ(plan.bands[0].steps[0].requests[0].bytes, 1024);
  EXPECT_GE(plan.bytes, alone.lower_bound_bytes + 5120);
  EXPECT_EQ(find_fault(plan), "");
}

TEST(PlacementProgram, ABufferThatOutlivesItsStepTakesTurns) {
  Recorded recorded;
  void* loss = nullptr;
  for (int i = 0; i < 4; ++i) {
    recorded.recorder.mark();
    void* const next = recorded.allocate(100);
    if (loss != nullptr) recorded.free(loss);
    loss = next;
    recorded.free(recorded.allocate(1000));
  }
  recorded.recorder.mark();
  const PlacementPlan plan = plan_program(recorded.recorder.take());
  const auto& request = plan.bands[0].steps.back().requests[0];
  EXPECT_EQ(request.slots, 2);
  EXPECT_EQ(plan.bytes, 512 + 512 + 1024);
}

TEST(PlacementProgram, WhatEachStepKeepsAnewHasNoSlot) {
  Recorded recorded;
  for (int i = 0; i < 4; ++i) {
    recorded.recorder.mark();
    (void)recorded.allocate(100);
    recorded.free(recorded.allocate(1000));
  }
  recorded.recorder.mark();
  const PlacementPlan plan = plan_program(recorded.recorder.take(), {.whole_program = false});
  EXPECT_EQ(plan.bands[0].steps.back().requests[0].slot, -1);
  EXPECT_EQ(plan.bytes, 1024);
}

// A mark between forward and backward: everything is live there. The plan's step begins elsewhere.
TEST(PlacementProgram, TheCircleIsCutWhereLeastIsLive) {
  Recorded recorded;
  std::vector<void*> kept;
  for (int i = 0; i < 5; ++i) {
    while (!kept.empty()) {  // the backward
      recorded.free(recorded.allocate(4000));
      recorded.free(kept.back());
      kept.pop_back();
    }
    for (int64_t layer = 0; layer < 6; ++layer) {
      recorded.free(recorded.allocate(20'000));
      kept.push_back(recorded.allocate(10'000 + 512 * layer));
    }
    recorded.recorder.mark();
  }
  const PlacementPlan plan = plan_program(recorded.recorder.take());
  const PlannedStep& step = plan.bands[0].steps.back();
  EXPECT_EQ(step.requests.size(), 18U);
  EXPECT_EQ(step.mark_at, 12) << "6 of the backward come after the mark";
  EXPECT_EQ(plan.bytes, plan.lower_bound_bytes);
  EXPECT_LE(plan.bytes, recorded.peak + 2048);

  // The same requests again are all as planned, mark after mark.
  BandFollower follower(plan.bands[0]);
  int64_t followed = 0, requests = 0;
  for (int i = 0; i < 6; ++i) {
    for (int back = 0; i > 0 && back < 6; ++back) {
      if (follower.next(4096, -1) != nullptr) ++followed;
      ++requests;
    }
    for (int64_t layer = 0; layer < 6; ++layer) {
      if (follower.next(20'480, -1) != nullptr) ++followed;
      if (follower.next(10'240 + 512 * layer, -1) != nullptr) ++followed;
      requests += 2;
    }
    EXPECT_TRUE(follower.mark().exact);
  }
  EXPECT_EQ(followed, requests);
}

TEST(PlacementProgram, StreamsLieInBandsOfTheirOwn) {
  Recorded recorded;
  const DeviceStream side = &recorded;
  for (int i = 0; i < 3; ++i) {
    recorded.recorder.mark();
    void* const a = recorded.allocate(5000);
    void* const b = recorded.allocate(3000, side);
    recorded.free(a);
    recorded.free(b);
  }
  recorded.recorder.mark();
  const PlacementPlan plan = plan_program(recorded.recorder.take());
  ASSERT_EQ(plan.bands.size(), 2U);
  EXPECT_EQ(plan.bands[0].bytes, 5120);
  EXPECT_EQ(plan.bands[1].offset, 5120);
  EXPECT_EQ(plan.bands[1].bytes, 3072);
}

TEST(PlacementProgram, AStreamWithoutASteadyStepIsLeftOut) {
  Recorded recorded;
  const DeviceStream side = &recorded;
  for (int i = 0; i < 3; ++i) {
    recorded.recorder.mark();
    recorded.free(recorded.allocate(3000 + 512 * i, side));
    recorded.free(recorded.allocate(50'000));
  }
  recorded.recorder.mark();
  const PlacementPlan plan = plan_program(recorded.recorder.take());
  ASSERT_EQ(plan.bands.size(), 2U);
  EXPECT_EQ(plan.bands[0].bytes, 0);
  EXPECT_EQ(plan.bytes, 50'176);
  EXPECT_EQ(find_fault(plan), "");
}

TEST(PlacementProgram, ARecordingWithoutASteadyStepIsRefused) {
  Recorded nothing;
  EXPECT_NE(refusal(nothing.recorder.take()).find("no memory request"), std::string::npos);
  Recorded one;
  EXPECT_NE(refusal(record_training(one, 1)).find("2 step marks"), std::string::npos);
  Recorded two;
  EXPECT_NE(refusal(record_training(two, 2)).find("the last two recorded steps differ"),
            std::string::npos)
      << "the first step makes the optimizer's state";
}

struct DrawnRequest {
  int64_t bytes;
  size_t life;  // requests; may pass the step's end
};

// The same program, run twice: once for the recording, once along the plan.
struct DrawnProgram {
  explicit DrawnProgram(uint32_t seed) {
    std::mt19937 random(seed);
    const auto draw = [&](size_t count, int64_t most, std::vector<DrawnRequest>& requests) {
      for (size_t i = 0; i < count; ++i) {
        const auto granules = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
        requests.push_back({512 * granules, 1 + random() % (2 * count)});
      }
    };
    draw(random() % 5, 60, start);
    draw(2 + random() % 12, 40, step);
  }
  std::vector<DrawnRequest> start, step;
};

Recording record_drawn(const DrawnProgram& program) {
  Recorded recorded;
  std::multimap<size_t, void*> deaths;
  size_t time = 0;
  const auto run = [&](const std::vector<DrawnRequest>& requests) {
    for (const DrawnRequest& request : requests) {
      while (!deaths.empty() && deaths.begin()->first <= time) {
        recorded.free(deaths.begin()->second);
        deaths.erase(deaths.begin());
      }
      deaths.emplace(time++ + request.life, recorded.allocate(request.bytes));
    }
  };
  run(program.start);
  for (int i = 0; i < 5; ++i) {
    recorded.recorder.mark();
    run(program.step);
  }
  recorded.recorder.mark();
  return recorded.recorder.take();
}

// Runs it along the band; empty, or what went wrong.
std::string follow_drawn(const DrawnProgram& program, const PlannedBand& band) {
  struct Live {
    size_t end;
    int64_t offset, bytes;
  };
  BandFollower follower(band);
  std::vector<Live> live;
  size_t time = 0;
  const auto serve = [&](const DrawnRequest& request) -> std::string {
    std::erase_if(live, [&](const Live& block) { return block.end <= time; });
    const PlannedRequest* const planned = follower.next(request.bytes, -1);
    if (planned == nullptr || planned->slot < 0) return "not planned";
    for (int32_t i = 0; i < planned->slots; ++i) {
      const int64_t offset = band.slots[static_cast<size_t>(planned->slot + i)].offset;
      const bool is_free = std::none_of(live.begin(), live.end(), [&](const Live& block) {
        return offset < block.offset + block.bytes && block.offset < offset + request.bytes;
      });
      if (!is_free) continue;
      live.push_back({time++ + request.life, offset, request.bytes});
      return "";
    }
    return "no slot is free";
  };
  const auto run = [&](const std::vector<DrawnRequest>& requests) -> std::string {
    for (const DrawnRequest& request : requests) {
      const std::string wrong = serve(request);
      if (!wrong.empty()) return wrong + " at " + std::to_string(time);
    }
    return "";
  };
  std::string wrong = run(program.start);
  for (int i = 0; i < 9 && wrong.empty(); ++i) {
    (void)follower.mark();
    wrong = run(program.step);
  }
  return wrong;
}

TEST(PlacementProgram, RandomProgramsFindEverySlotFree) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const DrawnProgram program(seed);
    const PlacementPlan plan = plan_program(record_drawn(program));
    ASSERT_EQ(find_fault(plan), "") << seed;
    ASSERT_GE(plan.bytes, plan.lower_bound_bytes) << seed;
    ASSERT_EQ(follow_drawn(program, plan.bands[0]), "") << seed;
  }
}

// --- Following --------------------------------------------------------------------------------

// Which planned request each is, by its place; -1 = none.
std::vector<int> places(BandFollower& follower, const PlannedBand& band,
                        const std::vector<int64_t>& sizes) {
  std::vector<int> found;
  for (const int64_t bytes : sizes) {
    const PlannedRequest* const planned = follower.next(bytes, -1);
    const PlannedRequest* const first = band.steps.back().requests.data();
    found.push_back(planned == nullptr ? -1 : static_cast<int>(planned - first));
  }
  return found;
}

TEST(BandFollower, FindsItsPlaceAgain) {
  PlannedBand band;
  band.steps.emplace_back();
  for (int64_t i = 1; i <= 8; ++i) band.steps[0].requests.push_back({512 * i, -1, -1, 0});
  band.steps[0].mark_at = 8;
  BandFollower follower(band);
  const auto follow = [&](const std::vector<int64_t>& granules) {
    std::vector<int64_t> sizes;
    for (const int64_t count : granules) sizes.push_back(512 * count);
    return places(follower, band, sizes);
  };
  using Places = std::vector<int>;
  EXPECT_EQ(follow({1, 2, 3, 4, 5, 6, 7, 8}), Places({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(follower.mark().exact);
  EXPECT_EQ(follow({1, 2, 20, 3, 4}), Places({0, 1, -1, 2, 3})) << "an extra request";
  EXPECT_FALSE(follower.mark().exact);
  EXPECT_EQ(follow({1, 20, 30, 4, 5}), Places({0, -1, -1, 3, 4})) << "other sizes";
  EXPECT_EQ(follower.mark().resyncs, 1);
  EXPECT_EQ(follow({1, 4, 5, 6}), Places({0, -1, 4, 5})) << "two are left out";
  EXPECT_EQ(follower.mark().followed, 3);
  EXPECT_EQ(follow({1, 2, 8, 3}), Places({0, 1, -1, 2})) << "one size alone proves nothing";
  EXPECT_FALSE(follower.mark().exact);
  EXPECT_EQ(follow({1, 2}), Places({0, 1}));
  EXPECT_FALSE(follower.mark().exact) << "most are missing";
  EXPECT_EQ(follow({1, 2, 3, 4, 5, 6, 7, 8, 9}), Places({0, 1, 2, 3, 4, 5, 6, 7, -1}));
  EXPECT_FALSE(follower.mark().exact);
}

TEST(BandFollower, AnOpThatBothKnowMustBeTheSame) {
  PlannedBand band;
  band.steps.push_back({{{512, 7, -1, 0}, {512, -1, -1, 0}}, 2});
  BandFollower follower(band);
  EXPECT_EQ(follower.next(512, 8), nullptr);
  EXPECT_NE(follower.next(512, -1), nullptr);
  EXPECT_NE(follower.next(512, 8), nullptr);
}

// --- Files ------------------------------------------------------------------------------------

TEST(PlacementFile, APlanSurvivesItsFile) {
  Recorded recorded;
  const PlacementPlan plan = plan_program(record_training(recorded, 4));
  const std::string text = to_json(plan);
  const PlacementPlan again = parse_placement(text, "text");
  EXPECT_EQ(to_json(again), text);
  EXPECT_EQ(again.bytes, plan.bytes);
  EXPECT_EQ(again.bands[0].steps.size(), plan.bands[0].steps.size());
}

std::string file_refusal(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  try {
    (void)parse_placement(text, "a.json");
  } catch (const FileError& error) {
    return error.message();
  }
  return "";
}

TEST(PlacementFile, WhatIsWrongIsNamed) {
  PlacementPlan plan;
  plan.bytes = 1024;
  plan.bands.push_back({0, 1024, {{0, 512}, {512, 512}}, {{{{512, -1, 0, 2}}, 1}}});
  const std::string text = to_json(plan);
  EXPECT_NO_THROW((void)parse_placement(text, "a.json"));
  const auto says = [&](const std::string& from, const std::string& to) {
    return file_refusal(text, from, to);
  };
  EXPECT_NE(says("\"version\": 1", "\"version\": 2").find("version"), std::string::npos);
  EXPECT_NE(says("lowtide.placement", "lowtide.plan").find("format"), std::string::npos);
  EXPECT_NE(says("[0, 512, 512]", "[0, 1024, 512]").find("a slot outside"), std::string::npos);
  EXPECT_NE(says("[0, 512, 512]", "[1, 512, 512]").find("names band 1"), std::string::npos);
  EXPECT_NE(says("[512, -1, 0, 2]", "[512, -1, 0, 3]").find("not in its band"), std::string::npos);
  EXPECT_NE(says("[512, -1, 0, 2]", "[1024, -1, 0, 2]").find("too small"), std::string::npos);
  EXPECT_NE(says("[0, 1, 1]", "[0, 2, 1]").find("mark"), std::string::npos);
  EXPECT_NE(says("[0, 1, 1]", "[0, 0, 0]").find("more entries"), std::string::npos);
  EXPECT_NE(says("\"arena_bytes\": 1024", "\"arena_bytes\": 512").find("does not lie"),
            std::string::npos);
}

TEST(PlacementFile, AChangedTextIsRefusedOrSound) {
  Recorded recorded;
  void* const block = recorded.allocate(700);
  for (int i = 0; i < 3; ++i) {
    recorded.recorder.mark();
    recorded.free(recorded.allocate(1000));
    recorded.free(recorded.allocate(3000, block));
  }
  recorded.recorder.mark();
  const std::string text = to_json(plan_program(recorded.recorder.take()));
  std::mt19937 random(5);
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string changed = text;
    for (uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
      constexpr std::string_view kLetters = "0123456789-,[] ";
      changed[random() % changed.size()] = kLetters[random() % kLetters.size()];
    }
    try {
      EXPECT_EQ(find_fault(parse_placement(changed, "text")), "");
      ++accepted;
    } catch (const FileError&) {
      // As it should.
    }
  }
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace lowtide::hooks
