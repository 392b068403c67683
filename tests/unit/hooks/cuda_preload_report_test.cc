#include "hooks/cuda_preload_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace lowtide::hooks {
namespace {

using ::testing::HasSubstr;

class PreloadReport : public ::testing::Test {
 protected:
  struct Buffer {
    char text[kReportBytes];
  };
  std::string text() {
    const size_t length = write_report_text(header, *figures, buffer->text);
    return {buffer->text, length};
  }
  nlohmann::json json() {
    const size_t length = write_report_json(header, *figures, buffer->text);
    return nlohmann::json::parse(std::string(buffer->text, length));
  }

  ReportHeader header{"train", 12, true, nullptr};
  std::unique_ptr<PreloadFigures> figures = std::make_unique<PreloadFigures>();
  std::unique_ptr<Buffer> buffer = std::make_unique<Buffer>();
};

TEST_F(PreloadReport, OnlyPlacesThatWereUsed) {
  EXPECT_FALSE(intercepted_any(*figures));
  figures->places[3] = {.live_bytes = 1 << 20, .peak_bytes = 5 << 19, .allocations = 2};
  figures->places[kManagedPlace].failures = 1;
  EXPECT_TRUE(intercepted_any(*figures));
  EXPECT_THAT(text(), HasSubstr("  device 3: peak 2.5 MiB"));
  EXPECT_THAT(text(), HasSubstr("  managed memory: peak 0.0 MiB"));
  EXPECT_EQ(text().find("pinned"), std::string::npos);
  EXPECT_EQ(json()["devices"].size(), 1U);
  EXPECT_EQ(json()["devices"][0]["device"], 3);
  EXPECT_EQ(json()["devices"][0]["peak_bytes"], 5 << 19);
  EXPECT_EQ(json()["managed"]["failures"], 1);
}

TEST_F(PreloadReport, NamesArePrintedAsTheyMayBe) {
  header.program = "a\"b\\c\n\xC3\xA4";
  EXPECT_EQ(json()["program"].get<std::string>().substr(0, 6), "a\"b\\c\n");
  header.nothing = "no CUDA";
  EXPECT_EQ(json()["nothing_intercepted"], "no CUDA");
  EXPECT_THAT(text(), HasSubstr("nothing intercepted: no CUDA\n"));
}

TEST_F(PreloadReport, TheFullestReportFits) {
  for (PlaceFigures& of : figures->places) {
    of = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
          INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    std::fill_n(of.largest, PlaceFigures::kLargest, INT64_MAX);
  }
  figures->unknown_frees = figures->failed_frees = figures->lost = INT64_MAX;
  EXPECT_EQ(json()["lost"], INT64_MAX);
  EXPECT_EQ(json()["devices"].size(), 64U);
  EXPECT_THAT(text(), HasSubstr("allocations are not in this\n"));
}

}  // namespace
}  // namespace lowtide::hooks
