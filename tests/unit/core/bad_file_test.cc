// Every way a file can be wrong gives a FileError that names file, field and fix, and nothing else.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "core/error.h"
#include "core/trace_file.h"
#include "unit/core/random_values.h"

namespace lowtide {
namespace {

using Read = std::function<void(const std::string&)>;

void read_trace_text(const std::string& text) { (void)trace_from_json(text, "a.json"); }
void read_plan_text(const std::string& text) { (void)plan_from_json(text, "a.json"); }

// The refusal's text, "" when the text was accepted. Any other exception fails the test.
std::string refusal(const Read& read, const std::string& text) {
  try {
    read(text);
  } catch (const FileError& error) {
    return error.message();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string good_trace() {
  Trace trace;
  trace.settings.device = "cpu";
  trace.storages = {{.bytes = 64, .rounded_bytes = 64, .resident = true}};
  trace.ops = {{.name = "aten::exp", .host_ns = 5, .inputs = {{0, 0}}}};
  trace.events = {{EventKind::op_begin, 0}, {EventKind::op_end, 0}};
  return trace_to_json(trace);
}

std::string good_plan() {
  Plan plan;
  plan.decisions = {{4, Action::drop, true}};
  plan.strategy = "greedy";
  return plan_to_json(plan);
}

struct BadText {
  const char* from;
  const char* to;
  const char* message;
};

void expect_refused(const Read& read, const std::string& good, const BadText& row) {
  const std::string message = refusal(read, replaced(good, row.from, row.to));
  EXPECT_NE(message.find(row.message), std::string::npos) << row.to << " gave: " << message;
  EXPECT_NE(message.find("a.json"), std::string::npos) << message;
  EXPECT_NE(message.find("Fix:"), std::string::npos) << message;
}

TEST(BadFileTest, TraceFieldsAreCheckedByName) {
  const std::string good = good_trace();
  ASSERT_EQ(refusal(read_trace_text, good), "");
  const BadText rows[] = {
      {"lowtide.trace", "lowtide.plan", "format: \"lowtide.plan\" must be \"lowtide.trace\""},
      {"\"format\"", "\"fromat\"", "format: is missing"},
      {"\"version\": 1", "\"version\": 2", "version: 2 is not known to Lowtide"},
      {"\"version\": 1", "\"version\": \"1\"", "version: \"1\" must be a whole number"},
      {"\"version\": 1", "\"version\": 1.5", "version: 1.5 must be a whole number"},
      {"\"step_ns\": 0", "\"step_ns\": -1", "step_ns: -1 must be a whole number from 0"},
      {"\"step_ns\": 0", "\"step_ns\": 9223372036854775808", "must be a whole number"},
      {"\"step_ns\": 0", "\"step_ns\": 1e400", "number that is too large"},
      {"\"step_ns\": 0", "\"step_ns\": NaN", "is not JSON at line"},
      {"\"step_ns\": 0", "\"step_ns\": null", "step_ns: null must be"},
      {"\"step_ns\": 0", "\"step_ns\": [[]]", "step_ns: an array must be"},
      {"\"step_ns\": 0", "\"step_ns\": {}", "step_ns: an object must be"},
      {"\"host_ns\":5", "\"host_ns\":-5", "ops[0].host_ns: -5 must be"},
      {"\"host_ns\":5", "\"host_ns\":9223372036854775807", "above 2^56"},
      {"\"host_ns\":5,", "", "ops[0].host_ns: is missing"},
      {"\"samples\":0", "\"samples\":2147483648", "ops[0].samples: 2147483648 must be"},
      {"\"phase\":\"forward\"", "\"phase\":\"sideways\"",
       "ops[0].phase: \"sideways\" must be one of forward, backward, optimizer, other"},
      {"\"flags\":[]", "\"flags\":[\"fast\"]", "ops[0].flags[0]: \"fast\" is not a flag"},
      {"\"key\":\"0000000000000000\"", "\"key\":\"00\"", "ops[0].key: \"00\" must be a text of 16"},
      {"\"key\":\"0000000000000000\"", "\"key\":\"000000000000000G\"", "16 hex digits"},
      {"\"key\":\"0000000000000000\"", "\"key\":\"0000000000000001\"", "fingerprint: \""},
      {"\"inputs\":[[0,0]]", "\"inputs\":[[0]]",
       "ops[0].inputs[0]: an array must have more than 1"},
      {"\"inputs\":[[0,0]]", "\"inputs\":[0]", "ops[0].inputs[0]: 0 must be an array"},
      {"\"inputs\":[[0,0]]", "\"inputs\":[[7,0]]", "ops[0]: has an input that is not a storage"},
      {"\"resident\":true", "\"resident\":1", "storages[0].resident: 1 must be true or false"},
      {"\"unattributed_share\":0.0", "\"unattributed_share\":-0.1",
       "must be a number of at least 0"},
      {"\"unattributed_share\":0.0", "\"unattributed_share\":2", "is not between 0 and 1"},
      {"[\"op_begin\",0]", "[\"op_start\",0]", "events[0][0]: \"op_start\" must be one of"},
      {"[\"op_begin\",0]", "[\"op_begin\",-1]", "events[0][1]: -1 must be"},
      {"\"settings\": {", "\"settings\": 3, \"s\": {", "settings: 3 must be an object"},
      {"\"device\":\"cpu\"", "\"device\":\"\xff\"", "is not JSON at line"},
      {"\"device\":\"cpu\"", "\"device\":\"\\ud800\"", "is not JSON at line"},
      {"\n}\n", "\n} x", "is not JSON at line"},
      {"\n}\n", "\n}{}", "is not JSON at line"},
  };
  for (const BadText& row : rows) expect_refused(read_trace_text, good, row);
}

TEST(BadFileTest, PlanFieldsAreCheckedByName) {
  const std::string good = good_plan();
  ASSERT_EQ(refusal(read_plan_text, good), "");
  const BadText rows[] = {
      {"lowtide.plan", "lowtide.trace", "format: \"lowtide.trace\" must be \"lowtide.plan\""},
      {"\"version\": 1", "\"version\": 7", "version: 7 is not known to Lowtide"},
      {"\"budget_bytes\": 0", "\"budget_bytes\": -1", "budget_bytes: -1 must be"},
      {"\"strategy\": \"greedy\"", "\"strategy\": 1", "strategy: 1 must be a text"},
      {"\"storage\":4", "\"storage\":null", "decisions[0].storage: null must be"},
      {"\"action\":\"drop\"", "\"action\":\"save\"", "only dropped storages are listed"},
      {"\"action\":\"drop\"", "\"action\":\"offload\"", "decisions[0].action: \"offload\" must be"},
      {"\"keep_after_recompute\":true", "\"keep_after_recompute\":\"yes\"",
       "must be true or false"},
      {"\"peak_event\":null", "\"peak_event\":-1", "predicted.peak_event: -1 must be"},
      {"\"gap\":null", "\"gap\":-1", "bound.gap: -1 must be a number of at least 0"},
      {"\"gap\":null", "\"gap\":\"0\"", "bound.gap: \"0\" must be a number"},
      {"\"gap\":null,", "", "bound.gap: is missing"},
      {"\"trace_fingerprint\": \"0000000000000000\"", "\"trace_fingerprint\": 0", "must be a text"},
      {"\"trace_fingerprint\": \"0000000000000000\"", "\"trace_fingerprint\": \"\"", "16 hex"},
  };
  for (const BadText& row : rows) expect_refused(read_plan_text, good, row);
}

TEST(BadFileTest, TextsThatAreNoObjectOfOurs) {
  for (const Read& read : {Read(read_trace_text), Read(read_plan_text)}) {
    for (const char* text : {"", " ", "null", "[]", "{}", "3", "\"x\"", "{", "\xef\xbb\xbf",
                             "{\"format\": \"lowtide.trace\"", "PK\x03\x04", "{\"a\":1}}"}) {
      EXPECT_NE(refusal(read, text), "") << text;
    }
  }
}

TEST(BadFileTest, DeepNestingIsRefusedWithoutBeingBuilt) {
  for (const char* open : {"[", "{\"a\":", "[{\"a\":"}) {
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text += open;
    EXPECT_NE(refusal(read_trace_text, text).find("nested deeper"), std::string::npos);
  }
  // Brackets inside a text are not nesting.
  const std::string brackets =
      "\"device\":\"" + std::string(100, '[') + "\\\"" + std::string(100, '{');
  const std::string text = replaced(good_trace(), "\"device\":\"cpu", brackets);
  EXPECT_EQ(refusal(read_trace_text, text).find("nested deeper"), std::string::npos);
}

TEST(BadFileTest, TooManyValuesAreRefusedWithoutBeingBuilt) {
  std::string text = "[";
  text.reserve(90'000'000);
  for (int i = 0; i < 41'000'000; ++i) text += "0,";
  EXPECT_NE(refusal(read_plan_text, text + "0]").find("40 million"), std::string::npos);
}

TEST(BadFileTest, MessagesStayShortPrintableAndOnOneLine) {
  const std::string long_text = "\"phase\":\"" + std::string(1'000'000, 'x') + "\\n\\u001b\"";
  for (const std::string& value :
       {long_text, std::string("\"phase\":\"a\\n\\u001b[31mb\\u00e9\"")}) {
    const std::string message =
        refusal(read_trace_text, replaced(good_trace(), "\"phase\":\"forward\"", value));
    EXPECT_LT(message.size(), 400U);
    for (const char c : message) EXPECT_TRUE(c >= ' ' && c <= '~') << message;
  }
}

TEST(BadFileTest, FilesCutAtEachPercentAreRefused) {
  const std::string trace = trace_to_json(test::random_trace(11, 40));
  const std::string plan = plan_to_json(test::random_plan(11));
  for (size_t percent = 0; percent < 100; ++percent) {
    EXPECT_NE(refusal(read_trace_text, trace.substr(0, trace.size() * percent / 100)), "")
        << percent;
    EXPECT_NE(refusal(read_plan_text, plan.substr(0, plan.size() * percent / 100)), "") << percent;
  }
}

TEST(BadFileTest, CutFilesSayThatTheyEndTooEarly) {
  const std::string message = refusal(read_trace_text, good_trace().substr(0, 40));
  EXPECT_NE(message.find("ends too early, at line 3"), std::string::npos) << message;
}

TEST(BadFileTest, OneWrongByteGivesAFileErrorOrAValidValue) {
  const std::string trace = trace_to_json(test::random_trace(12, 6));
  const std::string plan = plan_to_json(test::random_plan(12));
  std::mt19937_64 random(1);
  int refused = 0, accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = i % 2 == 0 ? trace : plan;
    text[random() % text.size()] = static_cast<char>(random());
    try {
      if (i % 2 == 0)
        trace_from_json(text).validate();
      else
        plan_from_json(text).validate();
      ++accepted;
    } catch (const FileError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);  // both outcomes happen, so the test tries something
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace lowtide
