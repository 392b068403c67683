// The autograd engine of a session: in front of the engine that was torch's default, which goes on
// to run every backward on its own threads.
//
// `get_default_saved_variable_hooks` gives every tensor saved in a captured step a `SavedHolder`;
// `execute` tells the runtime when backward begins and ends. Installed by replacing torch's engine
// stub; the object is never destroyed.
#pragma once

#include <memory>

#include "runtime/capture.h"
#include "runtime/runtime_state.h"

namespace lowtide::runtime {

// While it lives, tensors saved on this thread get no holder.
class NoHolders {
 public:
  NoHolders();
  ~NoHolders();
  NoHolders(const NoHolders&) = delete;
  NoHolders& operator=(const NoHolders&) = delete;
};

// Makes Lowtide's engine torch's default while it lives, and serves holders for `runtime`.
class EngineInstallation {
 public:
  EngineInstallation(std::shared_ptr<Runtime> runtime, FrontEnd& front_end);
  ~EngineInstallation();
  EngineInstallation(const EngineInstallation&) = delete;
  EngineInstallation& operator=(const EngineInstallation&) = delete;
};

// Makes Lowtide's engine torch's default for a StepWatcher, before there is a session to serve.
void install_engine();

}  // namespace lowtide::runtime
