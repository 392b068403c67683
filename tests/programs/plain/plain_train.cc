// Trains in one of many ways, as programs do that know nothing of Lowtide, and prints what a test
// needs: losses, a digest of the end state, and peaks by counters of its own.
//
//   plain_train KIND STEPS [HOW]
// KIND: of make_trainer(). STEPS: a number, or "-" to read it from stdin.
// HOW:  main (default), thread (all in a std::thread), turns (four threads, one after the other),
//       threads (two at once, without dropout), fork (workers make the batches' noise; commands are
//       run), throw (out of main after the last step), kill (by SIGTERM), exit (std::exit(7) within
//       a step), quick (_exit(9))
#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "counting/counting_allocator.h"
#include "counting/mapping_counter.h"
#include "models.h"

namespace {

using plain::Trainer;

uint64_t digest(const std::vector<torch::Tensor>& tensors) {
  uint64_t hash = 1469598103934665603U;
  for (const torch::Tensor& tensor : tensors) {
    const torch::Tensor flat = tensor.detach().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(flat.data_ptr());
    for (size_t i = 0; i < flat.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211U;
  }
  return hash;
}

void print_state(const char* label, const Trainer& trainer) {
  std::vector<torch::Tensor> state = trainer.parameters();
  for (const torch::Tensor& parameter : trainer.parameters()) {
    if (parameter.grad().defined()) state.push_back(parameter.grad());
  }
  std::printf("%s %016lx\n", label, digest(state));
}

void print_random_state() {
  std::printf("random %016lx\n",
              digest({at::globalContext().defaultGenerator(at::kCPU).get_state()}));
}

void train(Trainer& trainer, int steps) {
  for (int index = 1; index <= steps; ++index) {
    std::printf("loss %d %a\n", index, trainer.step(index));
    std::fflush(stdout);
  }
}

// A worker process uses torch, as data loaders do; its result comes back through a pipe.
double from_worker() {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  std::fflush(stdout);
  const pid_t worker = fork();
  if (worker == 0) {
    const torch::Tensor noise = torch::linspace(-1, 1, 4096).requires_grad_();
    const torch::Tensor loss = (noise * noise).sum();
    loss.backward();
    const auto value = noise.grad().abs().sum().item<double>();
    const bool written = write(ends[1], &value, sizeof value) == sizeof value;
    std::exit(written ? 0 : 1);
  }
  close(ends[1]);
  double value = -1;
  if (read(ends[0], &value, sizeof value) != sizeof value) value = -2;
  close(ends[0]);
  int status = 0;
  waitpid(worker, &status, 0);
  std::printf("worker exit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  return value;
}

void train_with_workers(Trainer& trainer, int steps) {
  for (int index = 1; index <= steps; ++index) {
    std::printf("worker %a\n", from_worker());
    std::printf("loss %d %a\n", index, trainer.step(index));
  }
  std::fflush(stdout);
  (void)std::system("echo \"child preload '$LD_PRELOAD'\"");
}

void train_in_two_threads(const std::string& kind, int steps) {
  const auto first = plain::make_trainer(kind, 0);
  const auto second = plain::make_trainer(kind, 0);
  std::thread other([&] {
    for (int index = 1; index <= steps; ++index) second->step(index);
  });
  for (int index = 1; index <= steps; ++index) first->step(index);
  other.join();
  std::printf("both finished\n");
}

int run(const std::string& kind, int steps, const std::string& how) {
  if (how == "threads") {
    train_in_two_threads(kind, steps);
    return 0;
  }
  const auto trainer = plain::make_trainer(kind);
  if (how == "thread") {
    std::thread([&] { train(*trainer, steps); }).join();
  } else if (how == "turns") {
    for (int turn = 0; turn < 4; ++turn) std::thread([&] { train(*trainer, steps); }).join();
  } else if (how == "fork") {
    train_with_workers(*trainer, steps);
  } else {
    train(*trainer, steps);
  }
  print_state("state", *trainer);
  print_random_state();
  if (how == "throw") throw std::runtime_error("the program's own trouble");
  if (how == "kill") std::raise(SIGTERM);
  if (how == "quick") _exit(9);
  if (how == "exit") {
    const torch::Tensor within = torch::ones({64}).requires_grad_();
    const torch::Tensor open_graph = (within * within).sum();
    std::exit(7);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  const lowtide::counting::CountingAllocator counter;
  int steps = 0;
  if (argc < 3) return 64;
  if (std::string(argv[2]) == "-") {
    std::cin >> steps;
  } else {
    steps = std::atoi(argv[2]);
  }
  const int code = run(argv[1], steps, argc > 3 ? argv[3] : "main");
  std::printf("peak requested %ld\npeak mapped %ld\n",
              static_cast<long>(lowtide::counting::CountingAllocator::bytes().peak),
              static_cast<long>(lowtide::counting::mapped_bytes().peak));
  return code;
}
