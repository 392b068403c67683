#include "core/file_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "core/error.h"
#include "core/trace_file.h"
#include "unit/core/random_values.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class FileIoTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("lowtide-file-io-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  static std::string refusal(const std::function<void()>& call) {
    try {
      call();
    } catch (const FileError& error) {
      return error.message();
    }
    return "accepted";
  }

  fs::path folder_;
};

TEST_F(FileIoTest, WritesAndReadsBackAnyBytes) {
  const std::string text("a\0b\n\xff", 5);
  write_whole_file(folder_ / "f", text);
  EXPECT_EQ(read_whole_file(folder_ / "f"), text);
  write_whole_file(folder_ / "f", "");
  EXPECT_EQ(read_whole_file(folder_ / "f"), "");
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileIoTest, NewFilesObeyTheUmaskLikeAnyOther) {
  write_whole_file(folder_ / "f", "x");
  struct stat info{};
  ASSERT_EQ(::stat((folder_ / "f").c_str(), &info), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
}

TEST_F(FileIoTest, MissingFileIsNamedWithTheSystemsWords) {
  const std::string message = refusal([&] { (void)read_whole_file(folder_ / "none"); });
  EXPECT_NE(message.find((folder_ / "none").string()), std::string::npos) << message;
  EXPECT_NE(message.find("No such file"), std::string::npos) << message;
}

TEST_F(FileIoTest, FoldersAndPipesAreRefusedAtOnce) {
  EXPECT_NE(refusal([&] { (void)read_whole_file(folder_); }).find("directory"), std::string::npos);
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal([&] { (void)read_whole_file(pipe); }).find("not a regular"), std::string::npos);
  EXPECT_NE(refusal([&] { write_whole_file(pipe, "x"); }).find("not a regular"), std::string::npos);
  EXPECT_NE(refusal([&] { write_whole_file(folder_, "x"); }).find("not a regular"),
            std::string::npos);
}

TEST_F(FileIoTest, OversizedFileIsRefusedBeforeItIsRead) {
  const fs::path path = folder_ / "huge";
  std::ofstream(path).put('{');
  fs::resize_file(path, static_cast<uintmax_t>(kMaxFileBytes) + 1);  // sparse: takes no space
  const std::string message = refusal([&] { (void)read_trace(path); });
  EXPECT_NE(message.find("above the limit of 1.00 GiB"), std::string::npos) << message;
}

TEST_F(FileIoTest, MissingFolderLeavesNothingBehind) {
  const std::string message = refusal([&] { write_whole_file(folder_ / "no" / "f", "x"); });
  EXPECT_NE(message.find("No such file or directory"), std::string::npos) << message;
  EXPECT_EQ(files(), 0U);
}

TEST_F(FileIoTest, FullDiskKeepsTheOldFileAndLeavesNoTemporary) {
  const fs::path path = folder_ / "f";
  write_whole_file(path, "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = refusal([&] { write_whole_file(path, std::string(8192, 'x')); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_EQ(read_whole_file(path), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileIoTest, InvalidValuesAreNeverWritten) {
  Trace trace = test::random_trace(1);
  trace.step_ns = -1;
  EXPECT_THROW(write_trace(trace, folder_ / "t"), FileError);
  Plan plan;
  plan.budget_bytes = -1;
  EXPECT_THROW(write_plan(plan, folder_ / "p"), FileError);
  EXPECT_EQ(files(), 0U);
}

TEST_F(FileIoTest, TraceAndPlanFilesReadBackEqual) {
  const Trace trace = test::random_trace(2);
  write_trace(trace, folder_ / "t.trace.json");
  EXPECT_EQ(trace_to_json(read_trace(folder_ / "t.trace.json")), trace_to_json(trace));
  const Plan plan = test::random_plan(2);
  write_plan(plan, folder_ / "p.plan.json");
  EXPECT_EQ(plan_to_json(read_plan(folder_ / "p.plan.json")), plan_to_json(plan));
}

TEST_F(FileIoTest, KindIsWhatTheFileSaysInAnyVersion) {
  write_trace(Trace(), folder_ / "t");
  write_plan(Plan(), folder_ / "p");
  std::ofstream(folder_ / "later") << R"({"format": "lowtide.plan", "version": 99})";
  std::ofstream(folder_ / "other") << R"({"format": "lowtide.other"})";
  std::ofstream(folder_ / "text") << "hello";
  EXPECT_EQ(file_kind(folder_ / "t"), FileKind::trace);
  EXPECT_EQ(file_kind(folder_ / "p"), FileKind::plan);
  EXPECT_EQ(file_kind(folder_ / "later"), FileKind::plan);
  EXPECT_NE(refusal([&] { (void)file_kind(folder_ / "other"); }).find("must be \"lowtide.trace\""),
            std::string::npos);
  EXPECT_NE(refusal([&] { (void)file_kind(folder_ / "text"); }).find("name a trace, plan"),
            std::string::npos);
}

TEST_F(FileIoTest, ErrorsInAFileNameIt) {
  std::ofstream(folder_ / "bad.json") << "{}";
  const std::string message = refusal([&] { (void)read_plan(folder_ / "bad.json"); });
  EXPECT_NE(message.find((folder_ / "bad.json").string()), std::string::npos) << message;
}

}  // namespace
}  // namespace lowtide
