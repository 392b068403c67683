#include "options.h"

#include <CLI/CLI.hpp>

#include "core/bytes.h"
#include "core/error.h"

namespace lowtide::demo {
namespace {

int64_t parse_length(const std::string& text) {
  int64_t value = 0;
  if (!CLI::detail::lexical_cast(text, value) || value < 1) {
    throw InvalidInput("--lengths: '" + text + "' is not a sequence length; give two positive " +
                       "numbers, for example --lengths 32:256");
  }
  return value;
}

void parse_lengths(const std::string& text, Options& options) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) {
    throw InvalidInput("--lengths: '" + text +
                       "' has no ':'; write shortest:longest, for example " + "--lengths 32:256");
  }
  options.min_length = parse_length(text.substr(0, colon));
  options.max_length = parse_length(text.substr(colon + 1));
  if (options.min_length > options.max_length) {
    throw InvalidInput("--lengths: the shortest length in '" + text + "' is above the longest; " +
                       "swap them");
  }
}

void require(bool condition, const std::string& message) {
  if (!condition) throw InvalidInput(message);
}

void check(const Options& options, const OptionSet& set) {
  require(!set.heads || options.width % options.heads == 0,
          "--width " + std::to_string(options.width) + " cannot be split into --heads " +
              std::to_string(options.heads) + "; choose a multiple");
  require(options.stop_at <= options.steps,
          "--stop-at " + std::to_string(options.stop_at) + " is after the last of --steps " +
              std::to_string(options.steps) + "; give a smaller one");
  require(!options.limit_bytes || !options.lowtide,
          "--limit limits the plain program; give --no-lowtide too, or use --budget");
  require(!options.limit_bytes || options.device == Device::cpu,
          "--limit works on the CPU only; leave it out with --device cuda");
  require(options.lowtide || options.plan.empty(),
          "--plan has no meaning with --no-lowtide; leave one of them out");
  require(options.lowtide || !options.idle, "--idle needs a session; leave --no-lowtide out");
}

void add_data(CLI::App& app, const OptionSet& set, Options& options, std::string& lengths) {
  app.add_option("--batch", options.batch, "rows per step")->check(CLI::Range(1, 1 << 16));
  if (set.images) {
    app.add_option("--images", options.images, "images to learn, one per line: pixels, class");
  }
  if (!set.text) return;
  app.add_option("--text", options.text, "UTF-8 text to learn")->capture_default_str();
  app.add_option("--context", options.context, "characters per sequence")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--lengths", lengths, "draw the sequence length of each step, shortest:longest");
}

void add_model(CLI::App& app, const OptionSet& set, Options& options, std::string& recompute) {
  app.add_option("--width", options.width, "model width")->check(CLI::Range(1, 1 << 16));
  app.add_option("--layers", options.layers, "layers (of a stage, where there are stages)")
      ->check(CLI::Range(1, 1 << 12));
  app.add_option("--dropout", options.dropout, "dropout probability")->check(CLI::Range(0.0, 0.99));
  app.add_option("--recompute", recompute, "hand-written recompute: none or blocks")
      ->check(CLI::IsMember({"none", "blocks"}));
  if (set.heads) {
    app.add_option("--heads", options.heads, "attention heads")->check(CLI::Range(1, 1 << 12));
  }
  if (set.fused) app.add_flag("--fused", options.fused, "recurrent layers as one operator each");
}

void add_training(CLI::App& app, const OptionSet& set, Options& options, std::string& device) {
  app.add_option("--steps", options.steps, "training steps")->check(CLI::Range(1, 1 << 30));
  app.add_option("--stop-at", options.stop_at, "leave after this step")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--eval-every", options.eval_every, "steps between evaluations")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--lr", options.lr, "learning rate")->check(CLI::PositiveNumber);
  if (set.momentum) {
    app.add_option("--momentum", options.momentum, "of SGD")->check(CLI::Range(0.0, 1.0));
  }
  app.add_option("--seed", options.seed, "seed of parameters, dropout and data");
  app.add_option("--checkpoint", options.checkpoint, "write the state here at the end");
  app.add_option("--resume", options.resume, "continue from this checkpoint");
  app.add_option("--device", device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--threads", options.threads, "intra-op threads")->check(CLI::Range(1, 1024));
  app.add_flag("--deterministic", options.deterministic, "deterministic algorithms only");
}

void add_memory(CLI::App& app, Options& options, bool& no_lowtide, std::string& limit) {
  app.add_option("--budget", options.budget, "memory budget: 300MiB, bytes, auto or none")
      ->capture_default_str();
  app.add_option("--reserve", options.reserve, "bytes to leave free below the budget");
  app.add_option("--strategy", options.strategy, "of the planner, by name");
  app.add_option("--plan", options.plan, "use this plan file from the first step");
  app.add_option("--name", options.name, "name of the trace and plan files");
  app.add_option("--directory", options.directory, "folder of the trace and plan files");
  app.add_option("--warmup", options.warmup_steps, "warm-up steps")->check(CLI::Range(0, 1000));
  app.add_option("--unwatched", options.unwatched_steps,
                 "steps among them that are not watched: they tell what a plain one takes")
      ->check(CLI::Range(0, 1000));
  app.add_option("--probe", options.probe_steps, "probe steps")->check(CLI::Range(1, 1000));
  app.add_option("--canary", options.canary_every, "steps between canaries, 0 = off")
      ->check(CLI::Range(0, 1 << 30));
  app.add_flag("--verbose", options.verbose, "say on stderr what the session does");
  app.add_flag("--no-lowtide", no_lowtide, "train plainly");
  app.add_option("--limit", limit, "with --no-lowtide: hard limit on reserved bytes");
  app.add_flag("--idle", options.idle, "create a session but do not step it");
}

void add_figures(CLI::App& app, Options& options) {
  app.add_option("--json", options.json, "write figures of the run to this file");
  app.add_flag("--grad-digest", options.grad_digest, "digest of the gradients of each step");
  app.add_flag("--paced", options.paced, "wait for a line on stdin before each step");
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, const OptionSet& set) {
  Options options = set.defaults;
  CLI::App app{set.summary + ", under an absolute memory budget."};
  // A later mention of an option replaces an earlier one, so that scripts can append to defaults.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  std::string lengths;
  std::string limit;
  std::string recompute = "none";
  std::string device = "cpu";
  bool no_lowtide = false;
  add_data(app, set, options, lengths);
  add_model(app, set, options, recompute);
  add_training(app, set, options, device);
  add_memory(app, options, no_lowtide, limit);
  add_figures(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);
      return std::nullopt;
    }
    throw InvalidInput(std::string(error.what()) + " (" + options.program +
                       " --help lists the options)");
  }
  options.lowtide = !no_lowtide;
  options.recompute = recompute == "blocks" ? Recompute::blocks : Recompute::none;
  options.device = device == "cuda" ? Device::cuda : Device::cpu;
  if (!lengths.empty()) parse_lengths(lengths, options);
  if (!limit.empty()) options.limit_bytes = parse_bytes(limit, "--limit");
  if (options.name.empty()) options.name = options.program;
  check(options, set);
  return options;
}

}  // namespace lowtide::demo
