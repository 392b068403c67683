#include "hooks/ledger.h"

#include <gtest/gtest.h>

#include <thread>

namespace lowtide::hooks {
namespace {

TEST(Ledger, NoOpRunsAtFirst) {
  std::thread([] { EXPECT_EQ(current_op(), -1); }).join();
}

TEST(Ledger, ScopesNestAndPutTheOuterOpBack) {
  const ScopedOp outer(3);
  {
    const ScopedOp inner(7);
    EXPECT_EQ(current_op(), 7);
  }
  EXPECT_EQ(current_op(), 3);
}

TEST(Ledger, EachThreadHasItsOwnOp) {
  const ScopedOp op(3);
  std::thread([] {
    EXPECT_EQ(current_op(), -1);
    set_current_op(9);
    EXPECT_EQ(current_op(), 9);
  }).join();
  EXPECT_EQ(current_op(), 3);
}

}  // namespace
}  // namespace lowtide::hooks
