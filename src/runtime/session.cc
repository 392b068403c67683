#include "runtime/session.h"

#include "runtime/session_impl.h"

namespace lowtide {

const char* to_string(SessionPhase phase) {
  switch (phase) {
    case SessionPhase::disabled:
      return "disabled";
    case SessionPhase::warmup:
      return "warm-up";
    case SessionPhase::probe:
      return "probe";
    case SessionPhase::verify:
      return "verify";
    case SessionPhase::enforce:
      return "enforce";
  }
  return "unknown";
}

Step::Step(runtime::SessionImpl* session) : session_(session) {
  if (session_ != nullptr && !session_->begin_step()) {
    session_ = nullptr;
  }
}

Step::~Step() {
  if (session_ != nullptr) {
    session_->end_step();
  }
}

Session::Session(SessionOptions options)
    : impl_(std::make_unique<runtime::SessionImpl>(std::move(options))) {}
Session::~Session() = default;

Step Session::step() { return Step(impl_.get()); }
SessionPhase Session::phase() const { return impl_->phase(); }
SessionStats Session::stats() const { return impl_->stats(); }
StepReport Session::last_step() const { return impl_->last_step(); }
std::optional<Plan> Session::plan() const { return impl_->plan(); }
const Trace* Session::trace() const { return impl_->trace(); }
int64_t Session::budget_bytes() const { return impl_->limit_bytes(); }
std::string Session::report() const { return impl_->report(); }
std::string Session::stats_json() const { return impl_->stats_json(); }

}  // namespace lowtide
