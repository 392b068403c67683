#include "core/error.h"

#include <gtest/gtest.h>

#include "core/version.h"

namespace lowtide {
namespace {

TEST(ErrorTest, TextEndsWithTheFileNameAndLineThatThrew) {
  const InvalidInput error("budget 'x' is wrong");
  const auto line = std::to_string(__LINE__ - 1);
  EXPECT_EQ(error.message(), "budget 'x' is wrong");
  EXPECT_EQ(std::string(error.what()), "budget 'x' is wrong [error_test.cc:" + line + "]");
}

TEST(ErrorTest, AllFiveTypesAreCaughtAsTheBase) {
  EXPECT_THROW(throw InvalidInput("a"), Error);
  EXPECT_THROW(throw FileError("a"), Error);
  EXPECT_THROW(throw Mismatch("a"), Error);
  EXPECT_THROW(throw OutOfBudget("a", 1, 2), Error);
  EXPECT_THROW(throw InternalError("a"), Error);
}

TEST(ErrorTest, OutOfBudgetCarriesTheAccount) {
  const OutOfBudget error("too small", 100, 250);
  EXPECT_EQ(error.budget_bytes(), 100);
  EXPECT_EQ(error.smallest_reachable_bytes(), 250);
}

TEST(ErrorTest, CheckThrowsInternalErrorAtTheLineOfTheCheck) {
  EXPECT_NO_THROW(LOWTIDE_CHECK(1 + 1 == 2, "arithmetic"));
  try {
    LOWTIDE_CHECK(1 + 1 == 3, "arithmetic");
    FAIL();
  } catch (const InternalError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("arithmetic"), std::string::npos) << what;
    EXPECT_NE(what.find("1 + 1 == 3"), std::string::npos) << what;
    EXPECT_NE(what.find("error_test.cc:" + std::to_string(__LINE__ - 6)), std::string::npos)
        << what;
  }
}

TEST(VersionTest, EqualsTheProjectVersion) { EXPECT_STREQ(kVersion, LOWTIDE_PROJECT_VERSION); }

}  // namespace
}  // namespace lowtide
