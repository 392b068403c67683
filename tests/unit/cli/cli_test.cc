#include "core/bytes.h"
#include "core/version.h"
#include "unit/cli/command_fixture.h"

namespace lowtide::cli {
namespace {

// Ten links of 1000 bytes: the plain peak is about eleven of them.
class CliTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    trace_ = testing::chain_trace(10);
    write("t.json", trace_);
  }
  nlohmann::json frontier() const { return run("frontier t.json --json").json()["points"]; }

  Trace trace_;
};

TEST_F(CliTest, VersionAndHelpSucceed) {
  EXPECT_EQ(run("--version").out, "lowtide " + std::string(kVersion) + "\n");
  EXPECT_EQ(run("--version").exit_code, 0);
  for (const char* verb : {"", "plan", "frontier", "check", "show", "place", "run"}) {
    const Outcome help = run(std::string(verb) + " --help");
    EXPECT_EQ(help.exit_code, 0) << verb;
    EXPECT_NE(help.out.find("Usage: lowtide"), std::string::npos) << help.out;
  }
}

TEST_F(CliTest, WrongUseIsOneLineAndExitTwo) {
  expect_error(run(""), 2, "A subcommand is required");
  expect_error(run("plam t.json"), 2, "unknown verb 'plam'");
  expect_error(run("plan t.json"), 2, "--budget is required");
  expect_error(run("plan --budget 1GiB"), 2, "TRACE is required");
  expect_error(run("plan t.json --budget 1GiB --fast"), 2, "--fast");
  expect_error(run("plan t.json --budget much"), 2, "--budget 'much' is not a number of bytes");
  expect_error(run("plan t.json --budget 1GiB --reserve -3"), 2, "");
  expect_error(run("plan t.json --budget 1GiB --strategies gready"), 2, "gready");
  expect_error(run("frontier t.json --strategies ''"), 2, "");
}

TEST_F(CliTest, BadFilesAreNamedAndExitTwo) {
  write("cut.json", text("t.json").substr(0, 500));
  write("text.json", "hello\nworld");
  for (const char* verb : {"plan", "frontier", "check", "show"}) {
    std::string tail = verb == std::string("plan") ? " --budget 1GiB" : "";
    if (verb == std::string("check")) tail = " t.json";
    expect_error(run(std::string(verb) + " none.json" + tail), 2, "none.json");
    expect_error(run(std::string(verb) + " cut.json" + tail), 2, "cut.json");
    expect_error(run(std::string(verb) + " text.json" + tail), 2, "is not JSON at line 1");
    expect_error(run(std::string(verb) + " ." + tail), 2, "directory");
  }
  expect_error(run("check t.json t.json"), 2, "must be \"lowtide.plan\"");
}

TEST_F(CliTest, FrontierFallsInPeakAndRisesInTime) {
  const nlohmann::json points = frontier();
  ASSERT_GE(points.size(), 3U);
  EXPECT_EQ(points[0]["dropped"], 0);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_LT(points[i]["peak_reserved_bytes"], points[i - 1]["peak_reserved_bytes"]);
    EXPECT_GT(points[i]["step_ns"], points[i - 1]["step_ns"]);
    EXPECT_GT(points[i]["dropped"], 0);
  }
}

TEST_F(CliTest, FrontierTextHasATableAndAPlot) {
  const Outcome outcome = run("frontier t.json");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* part : {"peak reserved", "extra time", "keep_all", "lowtide", "*", "+---"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
}

TEST_F(CliTest, ComparisonHasARowForEachStrategyAndBudget) {
  const Outcome outcome =
      run("frontier t.json --strategies keep_all,greedy,knapsack --budgets 4 --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json json = outcome.json();
  ASSERT_EQ(json["strategies"].size(), 3U);
  ASSERT_EQ(json["budgets"].size(), 4U);
  int64_t previous = INT64_MAX;
  for (const auto& row : json["budgets"]) {
    EXPECT_LT(row["budget_bytes"], previous);
    previous = row["budget_bytes"];
    ASSERT_FALSE(row["plans"].empty());
    for (const auto& plan : row["plans"]) {
      EXPECT_LE(plan["peak_reserved_bytes"], row["budget_bytes"]);
      EXPECT_GT(plan["steps_per_second"], 0);
    }
  }
  // The last budget is the one that only the strategy that reaches furthest can hold.
  EXPECT_EQ(json["budgets"][0]["plans"].size(), 3U);
  EXPECT_LT(json["budgets"][3]["plans"].size(), 3U);
}

TEST_F(CliTest, ComparisonOfAllSaysWhichStrategiesDoNotApply) {
  const Outcome plain = run("frontier t.json --strategies all --budgets 3 --batch 16");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  for (const char* part : {"samples/s", "planning CPU", "chain_dp: strategy", "blocks are marked",
                           "knapsack:flops: strategy", "beam"}) {
    EXPECT_NE(plain.out.find(part), std::string::npos) << part << "\n" << plain.out;
  }
  const Outcome marked = run("frontier t.json --strategies all --budgets 3 --mark-blocks");
  EXPECT_EQ(marked.out.find("blocks are marked"), std::string::npos) << marked.out;
  EXPECT_NE(marked.out.find("chain_dp"), std::string::npos);
  // One that is asked for by name has to apply.
  expect_error(run("frontier t.json --strategies sqrt --budgets 3"), 2, "blocks are marked");
  expect_error(run("frontier t.json --strategies greedy --budgets 0"), 2, "--budgets");
}

TEST_F(CliTest, BlocksThatCannotBeFoundAreSaid) {
  write("u.json", testing::unet_trace(2));
  expect_error(run("frontier u.json --mark-blocks"), 2, "does not repeat itself");
}

TEST_F(CliTest, FrontiersAreDrawn) {
  Trace hostile = trace_;
  hostile.settings.name = "<b>&\"";
  write("h.json", hostile);
  const std::string drawn = "frontier h.json --strategies keep_all,greedy --budgets 3 ";
  ASSERT_EQ(run(drawn + "--svg a.svg --html a.html").exit_code, 0);
  const std::string svg = text("a.svg");
  EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
  EXPECT_NE(svg.find("&lt;b&gt;&amp;&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  for (const char* line : {"<title>keep_all</title>", "<title>greedy</title>"}) {
    EXPECT_NE(svg.find(line), std::string::npos) << line;
  }
  const std::string html = text("a.html");
  EXPECT_NE(html.find(svg), std::string::npos);
  EXPECT_NE(html.find("</table>"), std::string::npos);
  expect_error(run("frontier t.json --svg none/a.svg"), 2, "none");
}

TEST_F(CliTest, FrontierOfOneStrategyIsThatStrategy) {
  const Outcome outcome = run("frontier t.json --strategies keep_all --json");
  ASSERT_EQ(outcome.json()["points"].size(), 1U);
  EXPECT_EQ(outcome.json()["points"][0]["strategy"], "keep_all");
  EXPECT_EQ(run("frontier t.json --strategies keep_all").exit_code, 0);
}

TEST_F(CliTest, PlanAtEachFrontierBudgetIsThatPointAndPassesTheCheck) {
  for (const nlohmann::json& point : frontier()) {
    const int64_t budget = point["budget_bytes"];
    const Outcome planned =
        run("plan t.json --budget " + std::to_string(budget) + " -o p.json --json");
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    EXPECT_EQ(planned.out, text("p.json"));
    const Plan plan = plan_from_json(planned.out);
    EXPECT_EQ(plan.budget_bytes, budget);
    EXPECT_EQ(plan.predicted.peak_reserved_bytes, point["peak_reserved_bytes"]);
    EXPECT_EQ(plan.predicted.recompute_ns, point["recompute_ns"]);
    const Outcome checked = run("check t.json p.json --json");
    EXPECT_EQ(checked.exit_code, 0) << checked.out;
    EXPECT_EQ(checked.json()["verdict"], "ok");
    EXPECT_EQ(checked.json()["recompute_ns"], point["recompute_ns"]);
  }
}

TEST_F(CliTest, AmpleBudgetDropsNothingAndReadsWell) {
  const Outcome outcome = run("plan t.json --budget 1GiB");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* part : {"budget      1.00 GiB (1073741824 bytes)", "dropped: 0 storages",
                           "left of the budget", "measured    not yet"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  }
}

TEST_F(CliTest, ReserveIsTakenFromTheBudget) {
  const int64_t budget = frontier()[0]["budget_bytes"];
  const auto dropped = [&](const std::string& options) {
    return plan_from_json(
               run("plan t.json --json --budget " + std::to_string(budget) + options).out)
        .decisions.size();
  };
  EXPECT_EQ(dropped(""), 0U);
  EXPECT_GT(dropped(" --reserve 1"), 0U);
}

TEST_F(CliTest, BudgetThatCannotBeMetExitsThreeWithTheSmallestReachable) {
  const int64_t smallest = frontier().back()["budget_bytes"];
  const Outcome outcome = run("plan t.json -o p.json --budget " + std::to_string(smallest - 1));
  expect_error(outcome, 3, std::to_string(smallest));
  EXPECT_NE(outcome.err.find(format_bytes(smallest)), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "p.json"));
  EXPECT_EQ(run("plan t.json --budget " + std::to_string(smallest)).exit_code, 0);
}

TEST_F(CliTest, CheckFindsAWrongPlanAndExitsOne) {
  const int64_t smallest = frontier().back()["budget_bytes"];
  ASSERT_EQ(run("plan t.json -o p.json --budget " + std::to_string(smallest)).exit_code, 0);
  Plan plan = read_plan(folder_ / "p.json");
  plan.predicted.peak_requested_bytes -= 1;
  write_plan(plan, folder_ / "wrong.json");
  const Outcome text_form = run("check t.json wrong.json");
  EXPECT_EQ(text_form.exit_code, 1);
  EXPECT_EQ(text_form.out.rfind("failed: wrong peak: ", 0), 0U) << text_form.out;
  const Outcome json_form = run("check t.json wrong.json --json");
  EXPECT_EQ(json_form.exit_code, 1);
  EXPECT_EQ(json_form.json()["verdict"], "wrong peak");

  plan.trace_fingerprint ^= 1;
  write_plan(plan, folder_ / "other.json");
  EXPECT_EQ(run("check t.json other.json --json").json()["verdict"], "wrong trace");
}

TEST_F(CliTest, PlanFileThatCannotBeWrittenIsNamed) {
  expect_error(run("plan t.json --budget 1GiB -o no/p.json"), 2, "no/p.json");
  expect_error(run("plan t.json --budget 1GiB -o ."), 2, "not a regular file");
}

TEST_F(CliTest, FullStandardOutputIsAnError) {
  const std::string command =
      "cd '" + folder_.string() + "' && '" LOWTIDE_COMMAND "' show t.json >/dev/full 2>stderr.txt";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_NE(text("stderr.txt").find("standard output"), std::string::npos);
}

TEST_F(CliTest, SameInputGivesTheSameOutput) {
  EXPECT_EQ(run("frontier t.json --json").out, run("frontier t.json --json").out);
  EXPECT_EQ(run("plan t.json --budget 8KiB --json").out,
            run("plan t.json --budget 8KiB --json").out);
}

}  // namespace
}  // namespace lowtide::cli
