// Cases of sessions on CUDA: one line of JSON each, for tests/python/test_session_cuda.py, which
// runs it over the CUDA double with two devices. Values are garbage there; streams, generators,
// memory and refusals are not.
#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "lowtide.h"

namespace {

using nlohmann::json;
using torch::Tensor;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kLayers = 8;
constexpr int kSteps = 12;

const auto on_cuda = torch::TensorOptions().device(torch::kCUDA);

// Of the double: how often a CUDA function was called.
uint64_t calls(const char* function) {
  using Calls = uint64_t (*)(const char*);
  static const auto ask = reinterpret_cast<Calls>(dlsym(RTLD_DEFAULT, "lowtide_double_calls"));
  return ask(function);
}

lowtide::SessionOptions options(int64_t budget) {
  lowtide::SessionOptions result;
  result.device = "cuda";
  result.budget = budget == 0 ? "none" : std::to_string(budget);
  result.store = false;
  return result;
}

struct Trained {
  int64_t reserved = 0;  // most in enforced steps
  int64_t replayed = 0;  // ops, in the last step
  int64_t dropped = 0;
  std::string phase;
};

Trained train(int64_t budget, const std::function<void()>& step) {
  lowtide::Session session(options(budget));
  Trained trained;
  for (int i = 0; i < kSteps; ++i) {
    {
      const lowtide::Step scope = session.step();
      step();
    }
    trained.replayed = session.last_step().replayed_ops;
  }
  trained.reserved = session.stats().peak_reserved_bytes;
  trained.phase = lowtide::to_string(session.phase());
  if (session.plan()) trained.dropped = static_cast<int64_t>(session.plan()->decisions.size());
  return trained;
}

// A budget between what the step needs at most and at least.
int64_t tight(const std::function<void()>& step) { return train(0, step).reserved * 3 / 4; }

// --- ops that draw without saying so ---

std::vector<uint64_t> seen_offsets;

Tensor noise(const Tensor& input) {
  at::Generator generator = at::globalContext().defaultGenerator(input.device());
  const std::lock_guard lock(generator.mutex());
  seen_offsets.push_back(generator.get_offset());
  generator.set_offset(generator.get_offset() + 4);
  return torch::empty_like(input);
}

TORCH_LIBRARY(lowtide_test_cuda, m) { m.def("noise(Tensor input) -> Tensor"); }
TORCH_LIBRARY_IMPL(lowtide_test_cuda, CUDA, m) { m.impl("noise", &noise); }

json undeclared_draws() {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("lowtide_test_cuda::noise", "")
                      .typed<Tensor(const Tensor&)>();
  const Tensor input = torch::empty({16 * kMiB / 4}, on_cuda);
  const Tensor weight = torch::ones({1}, on_cuda).requires_grad_();
  size_t strange = 0;
  size_t most_seen = 0;
  const auto step = [&] {
    seen_offsets.clear();
    Tensor sum = torch::zeros({1}, on_cuda);
    for (int i = 0; i < kLayers; ++i) sum = sum + (op.call(input) * weight).sum();
    const std::set<uint64_t> of_forward(seen_offsets.begin(), seen_offsets.end());
    sum.backward();
    for (const uint64_t offset : seen_offsets) strange += of_forward.contains(offset) ? 0 : 1;
    most_seen = std::max(most_seen, seen_offsets.size());
  };
  at::Generator generator = at::globalContext().defaultGenerator(at::Device(at::kCUDA, 0));
  const int64_t budget = tight(step);
  const uint64_t before = generator.get_offset();
  const Trained trained = train(budget, step);
  return {{"drawn", generator.get_offset() - before},
          {"expected", 4 * kLayers * kSteps},
          {"strange", strange},
          {"most_seen", most_seen},
          {"layers", kLayers},
          {"replayed", trained.replayed}};
}

// --- streams ---

// What is made on the default stream is saved by a node of another one.
json streams() {
  const Tensor input = torch::empty({16 * kMiB / 4}, on_cuda);
  const Tensor weight = torch::ones({1}, on_cuda).requires_grad_();
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  const c10::Stream side = guard.getStreamFromGlobalPool(c10::Device(c10::kCUDA, 0));
  const auto step = [&] {
    Tensor sum = torch::zeros({1}, on_cuda);
    for (int i = 0; i < kLayers; ++i) {
      const Tensor made = input.sin();
      c10::Event done(c10::DeviceType::CUDA);
      done.record(guard.getStream(side.device()));
      {
        const c10::StreamGuard on_side(side);
        done.block(side);
        guard.recordDataPtrOnStream(made.storage().data_ptr(), side);
        const Tensor part = (made * weight).sum();
        c10::Event back(c10::DeviceType::CUDA);
        back.record(side);
        back.block(guard.getDefaultStream(side.device()));
        guard.recordDataPtrOnStream(part.storage().data_ptr(),
                                    guard.getDefaultStream(side.device()));
        const c10::StreamGuard on_default(guard.getDefaultStream(side.device()));
        sum = sum + part;
      }
    }
    sum.backward();
    weight.mutable_grad().reset();
  };
  const int64_t budget = tight(step);
  uint64_t waits = 0;
  const auto counted = [&] {
    const uint64_t before = calls("cudaStreamWaitEvent");
    step();
    waits = calls("cudaStreamWaitEvent") - before;
  };
  counted();
  const uint64_t plain_waits = waits;
  const Trained trained = train(budget, counted);
  return {{"replayed", trained.replayed}, {"waits", waits}, {"plain_waits", plain_waits}};
}

// Training goes on after a session, and did so before.
json plain_around() {
  const Tensor weight = torch::ones({1024}, on_cuda).requires_grad_();
  const auto step = [&] { weight.sin().sum().backward(); };
  const auto in_session = [&] {
    lowtide::Session session(options(0));
    const lowtide::Step scope = session.step();
    step();
  };
  in_session();
  step();
  in_session();
  step();
  return {{"fine", true}};
}

// --- what a budget of one device leaves alone ---

json other_devices() {
  const Tensor weight = torch::ones({1}, on_cuda).requires_grad_();
  const Tensor on_host = torch::ones({4 * kMiB / 4}).requires_grad_();
  const Tensor second =
      torch::ones({4 * kMiB / 4}, torch::Device(torch::kCUDA, 1)).requires_grad_();
  const Tensor input = torch::empty({16 * kMiB / 4}, on_cuda);
  const auto step = [&] {
    Tensor sum = (on_host.sin() * on_host).sum().to(torch::kCUDA) +
                 (second.sin() * second).sum().to(torch::Device(torch::kCUDA, 0));
    for (int i = 0; i < kLayers; ++i) sum = sum + (input.sin() * weight).sum();
    sum.backward();
  };
  const int64_t budget = tight(step);
  lowtide::Session session(options(budget));
  for (int i = 0; i < kSteps; ++i) {
    const lowtide::Step scope = session.step();
    step();
  }
  // Nothing of another device is dropped, or counted.
  int64_t elsewhere = 0;
  const lowtide::Trace& trace = *session.trace();
  const lowtide::Plan plan = session.plan().value();
  for (const lowtide::Decision& decision : plan.decisions) {
    elsewhere += trace.storages[static_cast<size_t>(decision.storage)].bytes != 16 * kMiB;
  }
  return {{"phase", lowtide::to_string(session.phase())},
          {"dropped", plan.decisions.size()},
          {"elsewhere", elsewhere},
          {"over_budget", session.stats().steps_over_budget}};
}

// --- graphs ---

json captured_step() {
  const Tensor input = torch::ones({1024}, on_cuda);
  const Tensor weight = torch::ones({1024}, on_cuda).requires_grad_();
  const auto step = [&] { (input.sin() * weight).sum().backward(); };
  lowtide::Session session(options(0));
  {
    const lowtide::Step scope = session.step();
    step();
  }
  const int64_t before = session.stats().steps;
  {
    const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    {
      const lowtide::Step scope = session.step();
      step();
    }
    graph.capture_end();
    graph.replay();
  }
  const int64_t during = session.stats().steps - before;
  {
    const lowtide::Step scope = session.step();
    step();
  }
  return {{"counted", during}, {"after", session.stats().steps - before - during}};
}

// --- life ---

json comes_and_goes() {
  using c10::cuda::CUDACachingAllocator::get;
  const auto* const native = get();
  bool other = false;
  {
    lowtide::Session session(options(0));
    other = get() != native;
  }
  return {{"decorated", other}, {"put_back", get() == native}};
}

json refusals() {
  json said;
  for (const std::string device : {"xpu", "cuda:9", "moon"}) {
    lowtide::SessionOptions wanted = options(0);
    wanted.device = device;
    try {
      const lowtide::Session session(wanted);
      said[device] = "accepted";
    } catch (const lowtide::InvalidInput& error) {
      said[device] = error.message();
    }
  }
  return said;
}

json automatic_budget() {
  lowtide::SessionOptions wanted = options(0);
  wanted.budget = "auto";
  wanted.reserve = std::to_string(kMiB);
  const lowtide::Session session(wanted);
  return {{"bytes", session.budget_bytes()}};
}

json autocast() {
  const Tensor input = torch::empty({16384, 1024}, on_cuda);
  std::vector<Tensor> weights;
  for (int i = 0; i < kLayers; ++i)
    weights.push_back(torch::empty({1024, 1024}, on_cuda).requires_grad_());
  const auto step = [&] {
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
    Tensor hidden = input;
    for (const Tensor& weight : weights) hidden = torch::matmul(hidden, weight).relu();
    const Tensor loss = hidden.sum();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCUDA, false);
    loss.backward();
    for (Tensor& weight : weights) weight.mutable_grad().reset();
  };
  const Trained trained = train(tight(step), step);
  return {{"phase", trained.phase}, {"dropped", trained.dropped}, {"replayed", trained.replayed}};
}

}  // namespace

int main() {
  const std::pair<const char*, json (*)()> cases[] = {{"plain_around", plain_around},
                                                      {"undeclared_draws", undeclared_draws},
                                                      {"streams", streams},
                                                      {"other_devices", other_devices},
                                                      {"captured_step", captured_step},
                                                      {"comes_and_goes", comes_and_goes},
                                                      {"refusals", refusals},
                                                      {"automatic_budget", automatic_budget},
                                                      {"autocast", autocast}};
  for (const auto& [name, run] : cases) {
    json result;
    try {
      result = run();
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    result["case"] = name;
    std::cout << result.dump() << std::endl;
  }
}
