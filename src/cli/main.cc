// `lowtide`: plans, frontiers, checks and summaries from trace and plan files. Needs no torch.
#include <algorithm>
#include <iostream>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/version.h"

namespace lowtide::cli {
namespace {

int fail(std::string message, int exit_code) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::cerr << "lowtide: error: " << message << '\n';
  return exit_code;
}

int fail_over_budget(const OutOfBudget& error) {
  std::string message = error.message();
  const int64_t smallest = error.smallest_reachable_bytes();
  // Scripts read the byte count, people the other form.
  if (smallest >= 0 && message.find(std::to_string(smallest)) == std::string::npos) {
    message += " (smallest reachable budget: " + std::to_string(smallest) +
               " bytes = " + format_bytes(smallest) + ")";
  }
  return fail(message, kOutOfBudget);
}

// Takes off what follows `--` of `lowtide run`: words of another program, which no option of ours
// may be found in.
std::vector<std::string> take_command(int& argc, char** argv) {
  char** const end = argv + argc;
  char** const mark = std::find(argv, end, std::string_view("--"));
  if (argc < 2 || std::string_view(argv[1]) != "run" || mark == end) return {};
  argc = static_cast<int>(mark - argv);
  return {mark + 1, end};
}

int run(int argc, char** argv) {
  int exit_code = kOk;
  std::vector<std::string> command = take_command(argc, argv);
  CLI::App app(
      "Lowtide: training under an absolute memory budget. Runs programs, works on trace and plan "
      "files.",
      "lowtide");
  app.set_version_flag("--version", "lowtide " + std::string(kVersion));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 check failed, 2 bad input, 3 budget cannot be met; run: the "
      "program's.");
  add_plan(app);
  add_frontier(app);
  add_check(app, exit_code);
  add_show(app);
  add_place(app);
  add_run(app, std::move(command), exit_code);
  // CLI11 alone would only say that a verb is missing.
  const std::vector<CLI::App*> verbs = app.get_subcommands([](CLI::App*) { return true; });
  const auto is_named = [&](const CLI::App* verb) { return verb->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(verbs.begin(), verbs.end(), is_named)) {
    return fail("unknown verb '" + std::string(argv[1]) +
                    "'. Fix: plan, frontier, check, show, place or run",
                kBadInput);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return fail(std::string(error.what()) + ". Fix: see lowtide --help", kBadInput);
  } catch (const OutOfBudget& error) {
    return fail_over_budget(error);
  } catch (const InternalError& error) {
    return fail(error.what(), kInternalError);
  } catch (const Error& error) {
    return fail(error.message(), kBadInput);
  } catch (const std::exception& error) {
    return fail(error.what(), kInternalError);
  }
  if (!std::cout.flush()) return fail("cannot write to standard output", kBadInput);
  return exit_code;
}

}  // namespace
}  // namespace lowtide::cli

int main(int argc, char** argv) { return lowtide::cli::run(argc, argv); }
