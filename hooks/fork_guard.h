// Keeps a forked child usable: a fork waits until no other thread is inside a guarded object, and
// the child starts with every guard open. Without it a child that was forked while another thread
// held a lock would wait for that lock forever.
//
// Thread safety: all calls. The handlers are installed once per process, at the first add().
#pragma once

namespace lowtide::hooks {

class ForkGuarded {
 public:
  virtual void lock_before_fork() noexcept = 0;
  virtual void unlock_in_parent() noexcept = 0;
  virtual void unlock_in_child() noexcept = 0;

 protected:
  ~ForkGuarded() = default;
};

void add_fork_guarded(ForkGuarded* object);
void remove_fork_guarded(ForkGuarded* object) noexcept;

}  // namespace lowtide::hooks
