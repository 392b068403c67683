#include "runtime/run_options.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/run_environment.h"

namespace lowtide::runtime {
namespace {

std::string value_of(const char* variable, std::string otherwise) {
  const char* const value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? std::move(otherwise) : value;
}

std::string program_name() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "program" : program.filename().string();
}

}  // namespace

RunOptions run_options_from_environment() {
  namespace env = run_environment;
  RunOptions options;
  SessionOptions& session = options.session;
  session.budget = value_of(env::kBudget, session.budget);
  session.reserve = value_of(env::kReserve, session.reserve);
  session.plan_file = value_of(env::kPlan, session.plan_file);
  session.name = value_of(env::kName, program_name());
  session.verbose = value_of(env::kVerbose, "0") != "0";
  // The program may change its folder before the first file is written.
  session.directory =
      std::filesystem::absolute(value_of(env::kDirectory, session.directory)).string();
  const std::string policy = value_of(env::kOnInfeasible, "stop");
  if (policy != "stop" && policy != "continue") {
    throw InvalidInput(std::string(env::kOnInfeasible) + "=" + policy +
                       " is not a choice. Fix: stop or continue");
  }
  options.stop_when_infeasible = policy == "stop";
  return options;
}

}  // namespace lowtide::runtime
