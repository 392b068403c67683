#include "hooks/ledger.h"

namespace lowtide::hooks {
namespace {

thread_local int32_t running_op = -1;

}  // namespace

int32_t current_op() noexcept { return running_op; }

void set_current_op(int32_t op) noexcept { running_op = op; }

}  // namespace lowtide::hooks
