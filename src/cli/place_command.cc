// lowtide place FILE.csv: addresses for buffers of known size and lifetime.
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/placement_file.h"
#include "core/bytes.h"
#include "core/error.h"
#include "hooks/placement.h"

namespace lowtide::cli {
namespace {

struct PlaceOptions {
  std::string file, capacity, output;
  double seconds = 10;
  int64_t nodes = std::numeric_limits<int64_t>::max();
  bool json = false;
};

std::string both(int64_t bytes) {
  return std::to_string(bytes) + " bytes (" + format_bytes(bytes) + ")";
}

void print(const PlaceOptions& options, const hooks::PlacementOptions& placing,
           const hooks::Placement& placement, double seconds) {
  const int64_t height = placement.height_bytes, bound = placement.lower_bound_bytes;
  if (options.json) {
    nlohmann::ordered_json json = {{"buffers", placement.offsets.size()},
                                   {"height_bytes", height},
                                   {"lower_bound_bytes", bound},
                                   {"capacity_bytes", nullptr},
                                   {"seconds", seconds},
                                   {"nodes", placement.nodes}};
    if (!options.capacity.empty()) json["capacity_bytes"] = placing.capacity_bytes;
    std::cout << json.dump(2) << '\n';
    return;
  }
  std::cout << "buffers      " << placement.offsets.size() << '\n'
            << "height       " << both(height) << '\n'
            << "lower bound  " << both(bound) << (height == bound ? ", reached" : "") << '\n';
  if (!options.capacity.empty()) {
    std::cout << "capacity     " << both(placing.capacity_bytes) << ", kept\n";
  }
  std::cout << "time         " << format_duration(std::llround(seconds * 1e9)) << ", "
            << placement.nodes << " nodes searched\n";
  if (!options.output.empty()) std::cout << "\nwritten to " << options.output << '\n';
}

void run(const PlaceOptions& options) {
  hooks::PlacementOptions placing;
  placing.max_nodes = options.nodes;
  placing.max_seconds = options.seconds;
  if (!options.capacity.empty()) {
    placing.capacity_bytes = parse_bytes(options.capacity, "--capacity");
  }
  const PlacementInstance instance = read_placement_instance(options.file);
  const auto begin = std::chrono::steady_clock::now();
  const hooks::Placement placement = hooks::place(instance.buffers, placing);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (!options.capacity.empty() && placement.height_bytes > placing.capacity_bytes) {
    throw OutOfBudget("the capacity of " + both(placing.capacity_bytes) +
                          " is not met: the lowest height found is " +
                          both(placement.height_bytes) + ", and none is below " +
                          both(placement.lower_bound_bytes),
                      placing.capacity_bytes, placement.height_bytes);
  }
  if (!options.output.empty()) {
    write_placement_solution(instance, placement.offsets, options.output);
  }
  print(options, placing, placement, seconds.count());
}

}  // namespace

void add_place(CLI::App& app) {
  const auto options = std::make_shared<PlaceOptions>();
  CLI::App* verb = app.add_subcommand("place", "Give buffers of known lifetimes their addresses");
  verb->add_option("FILE", options->file, "CSV with columns id, lower, upper, size")->required();
  verb->add_option("--capacity", options->capacity,
                   "what is enough: 8GiB, 8GB, 300M or bytes; without it as low as can be");
  verb->add_option("--seconds", options->seconds, "time to search, default 10")
      ->check(CLI::Range(0.0, 1e6));
  verb->add_option("--nodes", options->nodes,
                   "nodes to search, no limit by default: the same number, the same placement")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("-o,--output", options->output, "CSV to write, with a column offset");
  verb->add_flag("--json", options->json, "print the figures as JSON");
  verb->callback([options] { run(*options); });
}

}  // namespace lowtide::cli
