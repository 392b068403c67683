// The verbs of the `lowtide` command. Each `add_*` puts one verb with its options on `app`; CLI11
// runs it while parsing. Results go to stdout; a verb throws lowtide::Error (main.cc turns it into
// one line on stderr) or sets `exit_code`.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace lowtide::cli {

enum ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,
  kBadInput = 2,         // wrong option, value or file
  kOutOfBudget = 3,      // the budget cannot be met
  kInternalError = 4,    // a fault in Lowtide
  kNotExecutable = 126,  // run: the program cannot be started, as shells say it
  kNotFound = 127
};

void add_plan(CLI::App& app);
void add_frontier(CLI::App& app);
void add_check(CLI::App& app, int& exit_code);
void add_show(CLI::App& app);
void add_place(CLI::App& app);
// `command`: the program and its arguments, what follows `--`.
void add_run(CLI::App& app, std::vector<std::string> command, int& exit_code);

}  // namespace lowtide::cli
