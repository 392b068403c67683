// lowtide run [options] -- PROGRAM ARGUMENTS: replaces itself by the program, with the preload
// library and the options in its environment. Needs no torch; the library does the rest.
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
  bool verbose = false;
};

// Where this command was installed or built.
fs::path preload_library() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* libraries : {LOWTIDE_LIBRARY_FOLDER, "../lib"}) {
    const fs::path library = folder / libraries / "liblowtide_preload.so";
    if (fs::exists(library, error)) return fs::canonical(library);
  }
  throw FileError("liblowtide_preload.so does not lie where 'lowtide' is installed (" +
                  folder.string() +
                  "). Fix: build or install Lowtide with torch (target lowtide_preload)");
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

// Returns only when the program could not be started.
int run(const RunOptions& options, std::vector<std::string> command) {
  check(options, command);
  namespace env = run_environment;
  const std::string library = preload_library().string();
  if (library.find_first_of(": ") != std::string::npos) {
    throw InvalidInput("'" + library +
                       "' cannot be preloaded: LD_PRELOAD takes no path with a space or a colon. "
                       "Fix: install Lowtide elsewhere");
  }
  const char* const preloaded = std::getenv("LD_PRELOAD");
  const bool others = preloaded != nullptr && *preloaded != '\0';
  set("LD_PRELOAD", others ? library + ":" + preloaded : library);
  set(env::kBudget, options.budget);
  set(env::kReserve, options.reserve);
  set(env::kPlan, options.plan.empty() ? "" : fs::absolute(options.plan).string());
  set(env::kDirectory, fs::absolute(options.directory).string());
  set(env::kName, options.name);
  set(env::kOnInfeasible, options.on_infeasible);
  set(env::kVerbose, options.verbose ? "1" : "");
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
      "run", "Train an unmodified LibTorch program within a budget: run [options] -- PROGRAM ...");
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
  verb->callback(
      [options, command = std::move(command), &exit_code] { exit_code = run(*options, command); });
}

}  // namespace lowtide::cli
