#include "runtime/rng_state.h"

#include <mutex>
#include <utility>

namespace lowtide::runtime {

std::unique_ptr<RngState> RngState::capture(at::Generator generator) {
  auto state = std::make_unique<RngState>();
  const std::lock_guard lock(generator.mutex());
  state->generator_ = generator;
  if (generator.device().is_cpu()) {
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    state->engine_ = cpu->engine().data();
    state->next_float_ = cpu->next_float_normal_sample();
    state->next_double_ = cpu->next_double_normal_sample();
    return state;
  }
  if (generator.device().is_cuda()) {
    state->cpu_ = false;
    state->seed_ = generator.current_seed();
    state->offset_ = generator.get_offset();
    return state;
  }
  return nullptr;
}

std::unique_ptr<RngState> RngState::at_offset(at::Generator generator, uint64_t offset) {
  auto state = capture(std::move(generator));
  state->offset_ = offset;
  return state;
}

uint64_t RngState::offset_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_offset();
}

void RngState::restore() const {
  at::Generator generator = generator_;
  const std::lock_guard lock(generator.mutex());
  if (cpu_) {
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
    at::mt19937 engine;
    engine.set_data(engine_);
    cpu->set_engine(engine);
    cpu->set_next_float_normal_sample(next_float_);
    cpu->set_next_double_normal_sample(next_double_);
  } else {
    generator.set_current_seed(seed_);
    generator.set_offset(offset_);
  }
}

}  // namespace lowtide::runtime
