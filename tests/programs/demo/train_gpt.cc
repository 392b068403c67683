// train_gpt: trains a character-level GPT under an absolute memory budget.
// Exit codes: 0 done, 2 bad input, 3 the memory allowed is not enough, 1 anything else.
#include <c10/util/Exception.h>

#include <iostream>

#include "core/error.h"
#include "train.h"

namespace {

using lowtide::demo::RunLog;

int report(RunLog* log, int code, const std::string& message) {
  std::cerr << "train_gpt: " << message << std::endl;
  if (log != nullptr) {
    log->set("error", message);
    log->set("exit_code", code);
  }
  return code;
}

int run(const lowtide::demo::Options& options, RunLog& log) {
  try {
    lowtide::demo::train(options, log);
    log.set("exit_code", 0);
    return 0;
  } catch (const lowtide::OutOfBudget& error) {
    log.set("smallest_reachable_bytes", error.smallest_reachable_bytes());
    return report(&log, 3, error.message());
  } catch (const c10::OutOfMemoryError& error) {
    return report(&log, 3, error.what_without_backtrace());
  } catch (const lowtide::InternalError& error) {
    return report(&log, 1, error.what());
  } catch (const lowtide::Error& error) {
    return report(&log, 2, error.message());
  } catch (const c10::Error& error) {
    return report(&log, 1, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return report(&log, 1, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto options = lowtide::demo::parse_options(argc, argv);
    if (!options) return 0;
    RunLog log(*options);
    const int code = run(*options, log);
    if (!options->json.empty()) log.write(options->json);
    return code;
  } catch (const lowtide::Error& error) {
    return report(nullptr, 2, error.message());
  }
}
