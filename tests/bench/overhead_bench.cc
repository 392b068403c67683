// What one forward op, and one tensor that autograd saves, cost more under a session that keeps
// all.
//
// `add` saves nothing and `mul` saves two tensors, both on one element, so that the op itself is as
// cheap as it gets. A batch is a chain of such ops; thread CPU time of its forward; the fastest of
// N batches counts. Plain batches run before the session begins and after it has ended; the
// session's are sorted by its phase. One line of JSON on stdout, ns per op;
// scripts/bench_overhead.py judges.
//
//   overhead_bench [BATCHES]
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "profiler/cpu_clock.h"
#include "runtime/session.h"

namespace {

using lowtide::Session;
using lowtide::SessionPhase;

constexpr int kOps = 200;
constexpr int kWarmupSteps = 100;  // many, so that this phase has a minimum worth the name

enum class Op { add, mul };

// ns per op of one forward; its backward, untimed, frees what it saved.
double batch(Op op, const at::Tensor& leaf) {
  const int64_t begin = lowtide::profiler::now_ns(lowtide::profiler::ClockKind::thread_cpu);
  at::Tensor value = leaf;
  for (int i = 0; i < kOps; ++i)
    value = op == Op::add ? at::add(value, leaf) : at::mul(value, leaf);
  const int64_t end = lowtide::profiler::now_ns(lowtide::profiler::ClockKind::thread_cpu);
  value.backward();
  leaf.mutable_grad().reset();
  return static_cast<double>(end - begin) / kOps;
}

void lower(std::map<std::string, double>& best, const std::string& arm, double ns) {
  const auto [at, added] = best.emplace(arm, ns);
  if (!added) at->second = std::min(at->second, ns);
}

std::map<std::string, double> measure(Op op, int batches) {
  const at::Tensor leaf = at::ones({1}).set_requires_grad(true);
  std::map<std::string, double> best;
  for (int i = 0; i < batches; ++i) lower(best, "plain", batch(op, leaf));
  {
    lowtide::SessionOptions options;
    options.budget = "64GiB";
    options.store = false;
    options.warmup_steps = kWarmupSteps;
    Session session(options);
    for (int i = 0; i < batches; ++i) lower(best, "idle", batch(op, leaf));
    int enforced = 0;
    for (int i = 0; enforced < batches && i < 100 * batches; ++i) {
      auto step = session.step();
      const SessionPhase phase = session.phase();
      lower(best, lowtide::to_string(phase), batch(op, leaf));
      enforced += phase == SessionPhase::enforce;
    }
  }
  for (int i = 0; i < batches; ++i) lower(best, "plain_again", batch(op, leaf));
  return best;
}

void print(const char* name, const std::map<std::string, double>& best) {
  std::printf("\"%s\": {", name);
  const char* separator = "";
  for (const auto& [arm, ns] : best) {
    std::printf("%s\"%s\": %.1f", separator, arm.c_str(), ns);
    separator = ", ";
  }
  std::printf("}");
}

}  // namespace

int main(int argc, char** argv) {
  const int batches = argc > 1 ? std::atoi(argv[1]) : 300;
  if (batches < 1) {
    std::fprintf(stderr, "overhead_bench: '%s' is not a count of batches; give 1 or more\n",
                 argv[1]);
    return 2;
  }
  at::set_num_threads(1);
  std::printf("{\"batches\": %d, ", batches);
  print("add", measure(Op::add, batches));
  std::printf(", ");
  print("mul", measure(Op::mul, batches));
  std::printf("}\n");
  return 0;
}
