#include "program.h"

#include <c10/util/Exception.h>

#include <iostream>

#include "core/error.h"
#include "train.h"

namespace lowtide::demo {
namespace {

class Outcome {
 public:
  explicit Outcome(std::string name) : name_(std::move(name)) {}

  int failed(RunLog* log, int code, const std::string& message) const {
    std::cerr << name_ << ": " << message << std::endl;
    if (log != nullptr) {
      log->set("error", message);
      log->set("exit_code", code);
    }
    return code;
  }

 private:
  std::string name_;
};

int train_logged(const Program& program, const Options& options, RunLog& log,
                 const Outcome& outcome) {
  try {
    train(program, options, log);
    log.set("exit_code", 0);
    return 0;
  } catch (const OutOfBudget& error) {
    log.set("smallest_reachable_bytes", error.smallest_reachable_bytes());
    return outcome.failed(&log, 3, error.message());
  } catch (const c10::OutOfMemoryError& error) {
    return outcome.failed(&log, 3, error.what_without_backtrace());
  } catch (const InternalError& error) {
    return outcome.failed(&log, 1, error.what());
  } catch (const Error& error) {
    return outcome.failed(&log, 2, error.message());
  } catch (const c10::Error& error) {
    return outcome.failed(&log, 1, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return outcome.failed(&log, 1, error.what());
  }
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  const Outcome outcome(program.options.defaults.program);
  try {
    const auto options = parse_options(argc, argv, program.options);
    if (!options) return 0;
    RunLog log(*options);
    const int code = train_logged(program, *options, log, outcome);
    if (!options->json.empty()) log.write(options->json);
    return code;
  } catch (const Error& error) {
    return outcome.failed(nullptr, 2, error.message());
  }
}

}  // namespace lowtide::demo
