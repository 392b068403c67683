// What the C calls of door A share: nothing is thrown through them, and the calling thread keeps
// the text of its last error.
#pragma once

#include <exception>
#include <string>

#include "core/error.h"

namespace lowtide::hooks {

[[nodiscard]] std::string& last_cuda_door_error() noexcept;  // the calling thread's

// What `call` returns, or `failed` with its reason kept.
template <typename Result, typename Call>
Result guarded(Result failed, const Call& call) noexcept {
  try {
    return call();
  } catch (const Error& error) {
    last_cuda_door_error() = error.message();
  } catch (const std::exception& error) {
    last_cuda_door_error() = error.what();
  }
  return failed;
}

}  // namespace lowtide::hooks
