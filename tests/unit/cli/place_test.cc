#include <algorithm>

#include "unit/cli/command_fixture.h"

namespace lowtide::cli {
namespace {

// Three lives of which two meet; columns in an order of their own, and one that nobody asked for.
class PlaceTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    write("b.csv", "size,op,upper,id,lower\n4096,conv,5,x,0\r\n1024,relu,9,y,3\n\n4096,,12,z,5\n");
  }
};

TEST_F(PlaceTest, PrintsTheHeightAndWritesTheOffsets) {
  const Outcome placed = run("place b.csv --capacity 5KiB -o s.csv");
  EXPECT_EQ(placed.exit_code, 0) << placed.err;
  for (const char* part : {"buffers      3\n", "height       5120 bytes (5.0 KiB)\n",
                           "lower bound  5120 bytes (5.0 KiB), reached\n",
                           "capacity     5120 bytes (5.0 KiB), kept\n", "written to s.csv\n"}) {
    EXPECT_NE(placed.out.find(part), std::string::npos) << placed.out;
  }
  const std::string solution = text("s.csv");
  EXPECT_EQ(solution.rfind("size,op,upper,id,lower,offset\n4096,conv,5,x,0,", 0), 0U) << solution;
  EXPECT_NE(solution.find("\n1024,relu,9,y,3,"), std::string::npos) << solution;
  EXPECT_EQ(std::count(solution.begin(), solution.end(), '\n'), 4);
}

TEST_F(PlaceTest, JsonHasTheFigures) {
  const nlohmann::json json = run("place b.csv --json").json();
  EXPECT_EQ(json["buffers"], 3);
  EXPECT_EQ(json["height_bytes"], 5120);
  EXPECT_EQ(json["lower_bound_bytes"], 5120);
  EXPECT_TRUE(json["capacity_bytes"].is_null());
  EXPECT_GE(json["seconds"], 0);
  EXPECT_EQ(run("place b.csv --capacity 8K --json").json()["capacity_bytes"], 8192);
}

TEST_F(PlaceTest, ACapacityThatIsNotMetNamesTheLowestHeight) {
  expect_error(run("place b.csv --capacity 5119 -o s.csv"), 3, "height found is 5120 bytes");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "s.csv"));
}

TEST_F(PlaceTest, AnAlignmentColumnIsKept) {
  write("a.csv", "id,lower,upper,size,alignment\na,0,2,3,1\nb,0,2,3,64\n");
  EXPECT_EQ(run("place a.csv --json --seconds 1").json()["height_bytes"], 6);
  write("a.csv", "id,lower,upper,size,alignment\na,0,2,3,64\nb,0,2,3,64\n");
  EXPECT_EQ(run("place a.csv --json --seconds 1").json()["height_bytes"], 67);
}

TEST_F(PlaceTest, BadFilesAreNamedWithTheirLine) {
  const std::string header = "id,lower,upper,size\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "f.csv:1: no buffer"},
      {header, "f.csv:1: no buffer"},
      {"id,lower,size\na,0,1\n", "f.csv:1: no column 'upper'"},
      {"id,lower,upper,size,size\n", "f.csv:1: two columns 'size'"},
      {"id,lower,upper,size,gaps\n", "f.csv:1: column 'gaps' is not supported"},
      {"id,lower,upper,size,offset\n", "f.csv:1: column 'offset' is not supported"},
      {header + "a,0,1,5\nb,0,1\n", "f.csv:3: 3 cells under a header of 4"},
      {header + "a,0,1,5\na,0,1,5\n", "f.csv:3: id a is that of line 2 too"},
      {header + ",0,1,5\n", "f.csv:2: the id is empty"},
      {header + "a,-1,1,5\n", "f.csv:2: lower '-1' is negative"},
      {header + "a,0,1,-5\n", "f.csv:2: size '-5' is negative"},
      {header + "a,0,1,5x\n", "f.csv:2: size '5x' is not a whole number"},
      {header + "a,0,1,\n", "f.csv:2: size '' is not a whole number"},
      {header + "a,0,1,9223372036854775808\n", "is beyond 2^63 - 1"},
      {header + "a,0,1,9223372036854775807\n", "f.csv:2: buffer a brings the sum of sizes"},
      {header + "a,0,1,5\n\nb,3,3,5\n", "f.csv:4: buffer b lives from 3 to 3"},
      {header + "\"a\",0,1,5\n", "f.csv:2: a quoted cell"},
  };
  for (const auto& [content, part] : cases) {
    write("f.csv", content);
    expect_error(run("place f.csv"), 2, part);
  }
  expect_error(run("place none.csv"), 2, "none.csv");
  expect_error(run("place b.csv --capacity much"), 2, "--capacity 'much'");
  expect_error(run("place b.csv --seconds -1"), 2, "--seconds");
  expect_error(run("place"), 2, "FILE is required");
}

}  // namespace
}  // namespace lowtide::cli
