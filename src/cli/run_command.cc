// lowtide run [options] -- PROGRAM ARGUMENTS: replaces itself by the program, with the preload
// library and the options in its environment. Needs no torch; the library does the rest. Which one:
// that of Lowtide's sessions, or with --watch-cuda the one that only counts CUDA memory.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/run_environment.h"

namespace lowtide::cli {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  std::string budget = "auto", reserve = "0", plan, directory = "lowtide", name;
  std::string on_infeasible = "stop";
  std::string report;
  bool verbose = false, watch_cuda = false, follow = false;
};

// Where this command was installed or built.
std::string preload_library(bool watch_cuda) {
  const std::string target = watch_cuda ? "lowtide_cuda_preload" : "lowtide_preload";
  const std::string file = "lib" + target + ".so";
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* libraries : {LOWTIDE_LIBRARY_FOLDER, "../lib"}) {
    const fs::path library = folder / libraries / file;
    if (fs::exists(library, error)) return fs::canonical(library).string();
  }
  throw FileError(file + " does not lie where 'lowtide' is installed (" + folder.string() +
                  "). Fix: build or install Lowtide with " +
                  (watch_cuda ? "CUDA's headers" : "torch") + " (target " + target + ")");
}

void set(const char* variable, const std::string& value) {
  if (!value.empty()) setenv(variable, value.c_str(), 1);
}

void check(const RunOptions& options, const std::vector<std::string>& command) {
  if (command.empty()) {
    throw InvalidInput("no program to run. Fix: lowtide run [options] -- PROGRAM [ARGUMENTS]");
  }
  if (options.budget != "auto" && options.budget != "none" &&
      parse_bytes(options.budget, "--budget") == 0) {
    throw InvalidInput("--budget 0 cannot hold anything. Fix: give e.g. 300MiB, auto or none");
  }
  (void)parse_bytes(options.reserve, "--reserve");
  if (!options.plan.empty() && !fs::exists(options.plan)) {
    throw FileError("--plan: '" + options.plan + "' is not there. Fix: leave it out to measure");
  }
}

void set_session(const RunOptions& options) {
  namespace env = run_environment;
  set(env::kBudget, options.budget);
  set(env::kReserve, options.reserve);
  set(env::kPlan, options.plan.empty() ? "" : fs::absolute(options.plan).string());
  set(env::kDirectory, fs::absolute(options.directory).string());
  set(env::kName, options.name);
  set(env::kOnInfeasible, options.on_infeasible);
  set(env::kVerbose, options.verbose ? "1" : "");
}

// Returns only when the program could not be started.
int run(const RunOptions& options, std::vector<std::string> command) {
  check(options, command);
  namespace env = run_environment;
  const std::string library = preload_library(options.watch_cuda);
  if (library.find_first_of(": ") != std::string::npos) {
    throw InvalidInput("'" + library +
                       "' cannot be preloaded: LD_PRELOAD takes no path with a space or a colon. "
                       "Fix: install Lowtide elsewhere");
  }
  const char* const preloaded = std::getenv("LD_PRELOAD");
  const bool others = preloaded != nullptr && *preloaded != '\0';
  set("LD_PRELOAD", others ? library + ":" + preloaded : library);
  if (options.watch_cuda) {
    set(env::kCudaReport, options.report.empty() ? "" : fs::absolute(options.report).string());
    set(env::kCudaFollow, options.follow ? "1" : "");
    set(env::kCudaFirstProcess, std::to_string(getpid()));
  } else {
    set_session(options);
  }
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int problem = errno;
  std::cerr << "lowtide: error: cannot run '" << command[0] << "': " << std::strerror(problem)
            << '\n';
  return problem == ENOENT ? kNotFound : kNotExecutable;
}

}  // namespace

void add_run(CLI::App& app, std::vector<std::string> command, int& exit_code) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* verb = app.add_subcommand(
      "run",
      "Train an unmodified LibTorch program within a budget, or watch the CUDA memory of any one: "
      "run [options] -- PROGRAM ...");
  verb->add_option("--budget", options->budget, "8GiB, 8GB, 300M, bytes, auto or none")
      ->capture_default_str();
  verb->add_option("--reserve", options->reserve, "bytes to leave free below the budget");
  verb->add_option("--plan", options->plan, "plan file to keep to; the trace lies beside it");
  verb->add_option("--directory", options->directory, "folder of the trace and plan files")
      ->capture_default_str();
  verb->add_option("--name", options->name, "first part of their names; default: the program's");
  verb->add_option(
          "--on-infeasible", options->on_infeasible,
          "a budget that cannot be met: stop (exit code 3) or continue (as low as reachable)")
      ->check(CLI::IsMember({"stop", "continue"}))
      ->capture_default_str();
  verb->add_flag("--verbose", options->verbose, "say on stderr what happens");
  CLI::Option* const watch = verb->add_flag(
      "--watch-cuda", options->watch_cuda,
      "no budget: count the CUDA memory that any program asks for, and report when it ends");
  for (const char* const option : {"--budget", "--reserve", "--plan", "--on-infeasible"})
    watch->excludes(verb->get_option(option));
  verb->add_option("--report", options->report,
                   "with --watch-cuda: JSON file of the report, %p the process; default: stderr")
      ->needs(watch);
  verb->add_flag("--follow", options->follow,
                 "with --watch-cuda: also the programs and children that it starts")
      ->needs(watch);
  verb->callback(
      [options, command = std::move(command), &exit_code] { exit_code = run(*options, command); });
}

}  // namespace lowtide::cli
