#include "core/error.h"

#include <string_view>

namespace lowtide {
namespace {

std::string with_place(const std::string& message, const std::source_location& where) {
  std::string_view file = where.file_name();
  if (const size_t slash = file.rfind('/'); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);  // the build machine's folders are nobody's business
  }
  return message + " [" + std::string(file) + ":" + std::to_string(where.line()) + "]";
}

}  // namespace

Error::Error(const std::string& message, std::source_location where)
    : std::runtime_error(with_place(message, where)), message_(message) {}

OutOfBudget::OutOfBudget(const std::string& message, int64_t budget_bytes,
                         int64_t smallest_reachable_bytes, std::source_location where)
    : Error(message, where),
      budget_bytes_(budget_bytes),
      smallest_bytes_(smallest_reachable_bytes) {}

void detail::check_failed(const char* condition, const std::string& message,
                          std::source_location where) {
  throw InternalError(message + " (broken invariant: " + condition +
                          "). Fix: this is a fault in Lowtide; LOWTIDE_DISABLE=1 runs without it",
                      where);
}

}  // namespace lowtide
