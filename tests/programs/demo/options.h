// What a demo program was asked to do. Memory in bytes. A value, no thread safety
// needed. `parse_options` throws InvalidInput naming the option and the fix; it checks every range
// that the rest of the program relies on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lowtide::demo {

enum class Device : uint8_t { cpu, cuda };
// `blocks`: the usual way to save memory by hand, every block is run again in backward.
enum class Recompute : uint8_t { none, blocks };

struct Options {
  std::string program;

  // Data.
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::string images;
  int64_t batch = 8;
  int64_t context = 128;  // tokens of a sequence
  // With min_length > 0 every step draws its own sequence length from [min_length, max_length], and
  // the last step has a short batch.
  int64_t min_length = 0;
  int64_t max_length = 0;

  // Model.
  int64_t width = 128;
  int64_t layers = 4;
  int64_t heads = 4;
  double dropout = 0.1;
  bool fused = false;  // recurrent layers as one operator each
  Recompute recompute = Recompute::none;

  // Training.
  int64_t steps = 60;
  int64_t stop_at = 0;  // leave after this step, as if interrupted; 0 = run to the end
  int64_t eval_every = 0;
  double lr = 3e-4;
  double momentum = 0.9;
  uint64_t seed = 1;
  std::string checkpoint;  // written at the end; empty = none
  std::string resume;      // read at the start; empty = none
  Device device = Device::cpu;
  int threads = 1;
  bool deterministic = false;

  // Memory.
  bool lowtide = true;
  std::string budget = "auto";
  std::string reserve = "0";
  std::string strategy;
  std::string plan;
  std::string name;  // of the trace and plan files; the program's unless given
  std::string directory = "lowtide";
  int warmup_steps = 2;
  int unwatched_steps = 0;
  int probe_steps = 3;
  int canary_every = 1000;
  bool verbose = false;
  std::optional<int64_t> limit_bytes;  // plain arm: hard limit on reserved bytes
  // A session lives, but no step is ever begun in it: what a program pays for linking Lowtide.
  bool idle = false;

  // What to write down.
  std::string json;
  bool grad_digest = false;  // digest of all gradients after each step
  bool paced = false;        // one step per line on stdin, one JSON line per step on stdout

  [[nodiscard]] int64_t longest_sequence() const { return max_length > 0 ? max_length : context; }
};

// The options of one program: the common ones, and those of its data, model and optimizer.
struct OptionSet {
  std::string summary;  // one line of --help
  bool text = false;    // --text, --context, --lengths
  bool images = false;
  bool heads = false;
  bool fused = false;
  bool momentum = false;
  Options defaults;
};

// Null when help was asked for (and printed).
[[nodiscard]] std::optional<Options> parse_options(int argc, char** argv, const OptionSet& set);

}  // namespace lowtide::demo
