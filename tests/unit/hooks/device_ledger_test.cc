#include "hooks/device_ledger.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace lowtide::hooks {
namespace {

void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

struct SeenByLedger : LedgerSink {
  void on_alloc(const MemoryEvent& event) noexcept override { events.push_back(event); }
  void on_free(const MemoryEvent& event) noexcept override {
    events.push_back(event);
    events.back().requested_bytes *= -1;
  }
  std::vector<MemoryEvent> events;
};

TEST(DeviceLedger, CountsLiveAndActiveBytesAndTheirPeaks) {
  DeviceLedger ledger;
  ledger.allocated(at(0x100), 1000, nullptr);
  ledger.allocated(at(0x200), 500, nullptr);
  ledger.freed(at(0x100), nullptr);
  DeviceLedgerStats stats = ledger.stats();
  EXPECT_EQ(stats.live.current, 500);
  EXPECT_EQ(stats.live.peak, 1500);
  EXPECT_EQ(stats.active.current, 1500) << "another stream may still use it";
  EXPECT_EQ(stats.blocks.current, 1);
  ledger.completed(at(0x100));
  EXPECT_EQ(ledger.stats().active.current, 500);
  ledger.reset_peaks();
  stats = ledger.stats();
  EXPECT_EQ(stats.live.peak, 500);
  EXPECT_EQ(stats.active.peak, 500);
  EXPECT_EQ(stats.blocks.peak, 1);
  EXPECT_EQ(stats.alloc_calls, 2);
  EXPECT_EQ(stats.free_calls, 1);
  ledger.reset_calls();
  EXPECT_EQ(ledger.stats().alloc_calls, 0);
}

TEST(DeviceLedger, TellsTheSinkInOrderWithOpAndStream) {
  DeviceLedger ledger;
  SeenByLedger seen;
  ledger.set_sink(&seen);
  {
    const ScopedOp op(7);
    ledger.allocated(at(0x100), 1000, at(0x9));
  }
  ledger.freed(at(0x100), at(0x9));
  ledger.completed(at(0x100));
  ledger.set_sink(nullptr);
  ledger.allocated(at(0x200), 1, nullptr);
  ASSERT_EQ(seen.events.size(), 2U);
  EXPECT_EQ(seen.events[0].sequence, 1U);
  EXPECT_EQ(seen.events[0].requested_bytes, 1000);
  EXPECT_EQ(seen.events[0].op, 7);
  EXPECT_EQ(seen.events[0].stream, at(0x9));
  EXPECT_EQ(seen.events[1].sequence, 2U);
  EXPECT_EQ(seen.events[1].requested_bytes, -1000);
  EXPECT_EQ(seen.events[1].address, at(0x100));
  EXPECT_EQ(seen.events[1].op, -1);
}

TEST(DeviceLedger, AFreeOfAnUnknownBlockIsCountedAndChangesNothing) {
  DeviceLedger ledger;
  ledger.allocated(at(0x100), 1000, nullptr);
  ledger.freed(at(0x300), nullptr);
  ledger.completed(at(0x300));
  EXPECT_EQ(ledger.stats().unknown_frees, 2);
  EXPECT_EQ(ledger.stats().live.current, 1000);
  EXPECT_EQ(ledger.stats().active.current, 1000);
}

TEST(DeviceLedger, AFreeThatComesTwiceCountsOnce) {
  DeviceLedger ledger;
  ledger.allocated(at(0x100), 1000, nullptr);
  ledger.freed(at(0x100), nullptr);
  ledger.freed(at(0x100), nullptr);
  EXPECT_EQ(ledger.stats().live.current, 0);
  EXPECT_EQ(ledger.stats().free_calls, 1);
}

TEST(DeviceLedger, AnAddressThatIsGivenAgainReplacesWhatWasThere) {
  DeviceLedger ledger;
  ledger.allocated(at(0x100), 1000, nullptr);
  ledger.allocated(at(0x100), 300, nullptr);
  EXPECT_EQ(ledger.stats().live.current, 300);
  EXPECT_EQ(ledger.stats().active.current, 300);
  EXPECT_EQ(ledger.stats().blocks.current, 1);
}

TEST(DeviceLedger, AdoptsWhatWasThereBefore) {
  DeviceLedger ledger;
  ledger.allocated(at(0x900), 77, nullptr);
  ledger.begin_adoption();
  EXPECT_EQ(ledger.stats().live.current, 0) << "what it knew is forgotten";
  ledger.adopt(at(0x100), 1000, /*live=*/true);
  ledger.adopt(at(0x200), 500, /*live=*/false);
  ledger.end_adoption();
  EXPECT_EQ(ledger.stats().live.current, 1000);
  EXPECT_EQ(ledger.stats().active.peak, 1500);
  EXPECT_EQ(ledger.stats().alloc_calls, 0);
  ledger.completed(at(0x200));
  ledger.freed(at(0x100), nullptr);
  ledger.completed(at(0x100));
  EXPECT_EQ(ledger.stats().active.current, 0);
  EXPECT_EQ(ledger.stats().unknown_frees, 0);
}

TEST(DeviceLedger, DoesNotAdoptWhatWentMeanwhile) {
  DeviceLedger ledger;
  ledger.begin_adoption();
  ledger.freed(at(0x100), nullptr);  // another thread's
  ledger.completed(at(0x100));
  ledger.freed(at(0x200), nullptr);
  ledger.completed(at(0x200));
  ledger.allocated(at(0x200), 300, nullptr);  // its place is taken
  for (const uint64_t address : {0x100, 0x200, 0x300}) ledger.adopt(at(address), 1000, true);
  ledger.end_adoption();
  EXPECT_EQ(ledger.stats().live.current, 1300);
  EXPECT_EQ(ledger.stats().blocks.current, 2);
  EXPECT_EQ(ledger.stats().unknown_frees, 0);
  ledger.freed(at(0x100), nullptr);
  EXPECT_EQ(ledger.stats().unknown_frees, 1) << "what went is not remembered";
}

TEST(DeviceLedger, NamesTheLargestHoldersByBytesOfTheirGroup) {
  DeviceLedger ledger;
  EXPECT_TRUE(ledger.largest_holders(3).empty());
  {
    const ScopedOp op(17);
    ledger.allocated(at(0x100), 40 << 20, nullptr);
    ledger.allocated(at(0x200), 40 << 20, nullptr);
  }
  ledger.allocated(at(0x300), 60 << 20, nullptr);
  ledger.allocated(at(0x400), 1 << 10, nullptr);
  EXPECT_EQ(to_text(ledger.largest_holders(2)), "2 x 40.0 MiB (op 17), 1 x 60.0 MiB");
}

TEST(DeviceLedger, ManyBlocksComeAndGo) {
  DeviceLedger ledger;
  constexpr uint64_t kBlocks = 5000;
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 1; i <= kBlocks; ++i) ledger.allocated(at(i << 9), 3, nullptr);
    EXPECT_EQ(ledger.stats().live.current, 3 * static_cast<int64_t>(kBlocks));
    for (uint64_t i = 1; i <= kBlocks; ++i) {
      ledger.freed(at(i << 9), nullptr);
      ledger.completed(at(i << 9));
    }
    EXPECT_EQ(ledger.stats().active.current, 0);
  }
  EXPECT_TRUE(ledger.largest_holders(3).empty());
}

TEST(DeviceLedger, TellsItsSinkOfReservedBytes) {
  struct Reserved : SeenByLedger {
    void on_reserved(int64_t bytes) noexcept override { all.push_back(bytes); }
    std::vector<int64_t> all;
  } seen;
  DeviceLedger ledger;
  ledger.reserved(4096);  // nobody listens
  ledger.set_sink(&seen);
  ledger.reserved(2048);
  ledger.reserved(-2048);
  EXPECT_EQ(seen.all, (std::vector<int64_t>{2048, -2048}));
}

TEST(DeviceLedger, CanBeReadAndItsSinkReplacedWhileBlocksComeAndGo) {
  DeviceLedger ledger;
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) {
      const DeviceLedgerStats stats = ledger.stats();
      EXPECT_GE(stats.active.current, stats.live.current);
      EXPECT_LE(ledger.largest_holders(1).size(), 1U);
      SeenByLedger seen;
      ledger.set_sink(&seen);
      ledger.set_sink(nullptr);
    }
  });
  for (uint64_t i = 0; i < 20000; ++i) {
    void* const block = at((1 + i % 7) << 9);
    ledger.allocated(block, 64, nullptr);
    ledger.freed(block, nullptr);
    ledger.completed(block);
  }
  done = true;
  reader.join();
  EXPECT_EQ(ledger.stats().active.current, 0);
}

// Readers hold its lock nearly all the time: without care a child would inherit it closed.
TEST(DeviceLedger, AForkedChildFindsItOpen) {
  DeviceLedger ledger;
  for (uint64_t i = 1; i <= 3000; ++i) ledger.allocated(at(i << 9), 100, nullptr);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) (void)ledger.largest_holders(3);
  });
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);  // a hang becomes a failure
      ledger.freed(at(1 << 9), nullptr);
      _exit(ledger.stats().blocks.current == 2999 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "in round " << round;
    if (status != 0) break;
  }
  done = true;
  reader.join();
  EXPECT_EQ(ledger.stats().blocks.current, 3000);
}

}  // namespace
}  // namespace lowtide::hooks
