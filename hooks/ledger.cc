#include "hooks/ledger.h"

namespace lowtide::hooks {
namespace {

// Read twice per allocation: the initial-exec model makes that one load instead of a call. Its few
// bytes fit in what the C library keeps for libraries loaded late.
[[gnu::tls_model("initial-exec")]] thread_local int32_t running_op = -1;

}  // namespace

int32_t current_op() noexcept { return running_op; }

void set_current_op(int32_t op) noexcept { running_op = op; }

}  // namespace lowtide::hooks
