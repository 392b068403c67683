#include "support/synthetic_instance.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>

namespace lowtide::testing {
namespace {

std::string joined(const std::vector<int>& ids) {
  std::string text = "[";
  for (const int id : ids) text += (text.size() > 1 ? "," : "") + std::to_string(id);
  return text + "]";
}

std::string op_text(const std::string& name, const std::vector<int>& in,
                    const std::vector<int>& out, uint64_t ns) {
  return "{\"name\":\"" + name + "\",\"inputs\":" + joined(in) + ",\"outputs\":" + joined(out) +
         ",\"time_ns\":" + std::to_string(ns) + "}";
}

}  // namespace

std::string random_instance(uint64_t seed, int forward_ops) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::string tensors;
  int count = 0;
  const auto tensor = [&](size_t bytes, bool input) {
    tensors += (count > 0 ? "," : "") + std::string("{\"bytes\":") + std::to_string(bytes) +
               ",\"input\":" + (input ? "true" : "false") + "}";
    return count++;
  };
  std::vector<int> values = {tensor(100, true), tensor(100, true)};
  const auto pick = [&](std::vector<int>& from, size_t window) {
    return from[from.size() - 1 - below(std::min(window, from.size()))];
  };
  const auto add = [](std::vector<int>& ids, int id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  std::string forward, backward;
  std::vector<int> made;
  for (int i = 0; i < forward_ops; ++i) {
    std::vector<int> in, out;
    for (size_t n = 1 + below(2); n > 0; --n) add(in, pick(values, below(3) == 0 ? 8 : 2));
    for (size_t n = 1 + (below(4) == 0 ? 1 : 0); n > 0; --n) {
      out.push_back(tensor(1 + below(9), false));
      made.push_back(out.back());
      values.push_back(out.back());
    }
    forward += (i > 0 ? "," : "") + op_text("f_" + std::to_string(i), in, out, 1 + below(9));
  }
  std::vector<int> saves, always;
  for (const int id : made) {
    const size_t fate = below(10);
    if (fate < 6) saves.push_back(id);
    if (fate == 6) always.push_back(id);
  }
  const std::vector<int> forward_outputs = {made.back()};
  std::erase(saves, made.back());
  std::vector<int> read = saves;
  read.insert(read.end(), always.begin(), always.end());
  std::erase(read, made.back());
  std::sort(read.rbegin(), read.rend());
  std::vector<int> gradients;
  int flow = forward_outputs[0];
  size_t position = 0;
  std::vector<int> again;  // read before
  for (int i = 0; position < read.size() || i == 0; ++i) {
    std::vector<int> in = {flow};
    for (size_t n = 1 + below(2); n > 0 && position < read.size(); --n) {
      in.push_back(read[position++]);
      again.push_back(in.back());
    }
    if (!again.empty() && below(3) == 0) add(in, again[below(again.size())]);
    flow = tensor(1 + below(6), false);
    std::vector<int> out = {flow};
    if (below(3) == 0) {
      out.push_back(tensor(1 + below(3), false));
      gradients.push_back(out.back());
    }
    backward += (i > 0 ? "," : "") + op_text("b_" + std::to_string(i), in, out, 1 + below(9));
  }
  gradients.push_back(flow);
  return "{\"format\":\"remat-instance\",\"version\":1,\"units\":{\"bytes\":\"byte\",\"time\":"
         "\"ns\"},"
         "\"tensors\":[" +
         tensors + "],\"forward\":[" + forward + "],\"backward\":[" + backward +
         "],\"saves\":" + joined(saves) + ",\"gradient_outputs\":" + joined(gradients) +
         ",\"forward_outputs\":" + joined(forward_outputs) + "}";
}

std::filesystem::path shared_instances() {
  static const std::filesystem::path folder = [] {
    std::filesystem::path path =
        std::filesystem::path(LOWTIDE_SOURCE_DIR).parent_path() / "shared" / "data" / "planner";
    if (!std::filesystem::exists(path / "optima.csv")) {
      std::printf("../shared/data/planner is not there: its instances are not judged\n");
      path.clear();
    }
    return path;
  }();
  return folder;
}

std::vector<Optimum> shared_optima() {
  std::vector<Optimum> optima;
  if (shared_instances().empty()) return optima;
  std::ifstream file(shared_instances() / "optima.csv");
  std::string line;
  std::getline(file, line);  // names
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    Optimum row;
    fields >> row.instance >> row.plain_ns >> row.plain_peak_bytes >> row.budget_bytes >>
        row.extra_ns >> row.proven_lower_bound_ns;
    if (fields) optima.push_back(row);
  }
  return optima;
}

}  // namespace lowtide::testing
