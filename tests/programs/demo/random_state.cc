#include "random_state.h"

#include <ATen/Context.h>

#include <mutex>

namespace lowtide::demo {
namespace {

std::vector<at::Generator> generators(c10::Device device) {
  std::vector<at::Generator> found{at::globalContext().defaultGenerator(c10::kCPU)};
  if (!device.is_cpu()) found.push_back(at::globalContext().defaultGenerator(device));
  return found;
}

}  // namespace

std::vector<at::Tensor> random_state(c10::Device device) {
  std::vector<at::Tensor> states;
  for (at::Generator& generator : generators(device)) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return states;
}

void set_random_state(c10::Device device, const std::vector<at::Tensor>& states) {
  std::vector<at::Generator> found = generators(device);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::lock_guard<std::mutex> lock(found[i].mutex());
    found[i].set_state(states.at(i));
  }
}

}  // namespace lowtide::demo
