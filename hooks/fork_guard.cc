#include "hooks/fork_guard.h"

#include <pthread.h>

#include <mutex>
#include <vector>

namespace lowtide::hooks {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<ForkGuarded*> objects;
};

// Never destroyed: a process may fork while its static objects go away.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

void before_fork() {
  registry().mutex.lock();
  for (ForkGuarded* object : registry().objects) object->lock_before_fork();
}

void in_parent() {
  for (ForkGuarded* object : registry().objects) object->unlock_in_parent();
  registry().mutex.unlock();
}

void in_child() {
  for (ForkGuarded* object : registry().objects) object->unlock_in_child();
  registry().mutex.unlock();
}

}  // namespace

void add_fork_guarded(ForkGuarded* object) {
  static const int installed = pthread_atfork(before_fork, in_parent, in_child);
  static_cast<void>(installed);
  const std::lock_guard lock(registry().mutex);
  registry().objects.push_back(object);
}

void remove_fork_guarded(ForkGuarded* object) noexcept {
  const std::lock_guard lock(registry().mutex);
  std::erase(registry().objects, object);
}

}  // namespace lowtide::hooks
