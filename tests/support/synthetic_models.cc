// Ready-made programs over TraceBuilder.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/index.h"
#include "support/synthetic_trace.h"

namespace lowtide::testing {
namespace {

// A model written as eager code: values are dropped by the user after their last forward reader,
// and backward runs the nodes in reverse, unpacking what each one saved.
class Tape {
 public:
  explicit Tape(std::string name) : builder_(std::move(name)) {}

  int parameter(int64_t bytes) {
    values_.push_back({builder_.resident(bytes), bytes, -1, {}, true});
    return static_cast<int>(values_.size()) - 1;
  }

  struct Node {
    std::string name;
    int64_t ns = 1;
    std::vector<int> inputs = {};         // values
    std::vector<int64_t> creates = {};    // bytes
    std::vector<int> saved_inputs = {};   // values
    std::vector<int> saved_outputs = {};  // indices into creates
    std::vector<int64_t> temporaries = {};
    int overwrites_input = -1;  // value changed in place
    bool differentiable = true;
  };
  // Values of the outputs; an in-place node returns the value it changed.
  std::vector<int> node(Node spec) {
    Record record{std::move(spec), {}, {}};
    for (size_t i = 0; i < record.spec.creates.size(); ++i) {
      values_.push_back(
          {kNone, record.spec.creates[i], static_cast<int>(nodes_.size()), {}, false});
      record.outputs.push_back(static_cast<int>(values_.size()) - 1);
    }
    std::vector<int> outputs = record.outputs;
    if (outputs.empty()) outputs.push_back(record.spec.overwrites_input);
    nodes_.push_back(std::move(record));
    return outputs;
  }
  int node1(Node spec) { return node(std::move(spec)).front(); }

  Trace finish(bool optimizer) {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      for (const int v : nodes_[n].spec.inputs) values_[at(v)].last_reader = static_cast<int>(n);
      for (const int v : nodes_[n].outputs) {
        auto& value = values_[at(v)];
        value.last_reader = std::max(value.last_reader, static_cast<int>(n));
      }
    }
    for (size_t n = 0; n < nodes_.size(); ++n) forward(static_cast<int>(n));
    backward();
    if (optimizer) {
      for (const auto& [parameter, gradient] : gradients_) {
        builder_.op({.name = "adamw",
                     .ns = 500,
                     .reads = {gradient},
                     .writes = {parameter},
                     .temporaries = {bytes_of_.at(parameter), bytes_of_.at(parameter)},
                     .phase = Phase::optimizer});
      }
    }
    for (const auto& entry : gradients_) builder_.free(entry.second);
    return builder_.finish();
  }

 private:
  struct Value {
    StorageId storage = kNone;
    int64_t bytes = 0;
    int last_reader = -1;
    std::vector<SaveId> saves;
    bool external = false;
  };
  struct Record {
    Node spec;
    std::vector<int> outputs;
    std::vector<std::pair<int, SaveId>> saves;
  };

  void forward(int n) {
    Record& record = nodes_[at(n)];
    SyntheticOp op{.name = record.spec.name, .ns = record.spec.ns};
    for (const int v : record.spec.inputs) op.reads.push_back(values_[at(v)].storage);
    op.creates = record.spec.creates;
    op.temporaries = record.spec.temporaries;
    if (record.spec.overwrites_input >= 0) {
      op.writes = {values_[at(record.spec.overwrites_input)].storage};
    }
    const auto created = builder_.op(op);
    for (size_t i = 0; i < created.size(); ++i) {
      values_[at(record.outputs[i])].storage = created[i];
    }
    const auto save = [&](int v) {
      Value& value = values_[at(v)];
      value.saves.push_back(builder_.pack(value.storage));
      record.saves.emplace_back(v, value.saves.back());
    };
    for (const int v : record.spec.saved_inputs) save(v);
    for (const int i : record.spec.saved_outputs) save(record.outputs[at(i)]);
    std::vector<int> touched = record.spec.inputs;
    touched.insert(touched.end(), record.outputs.begin(), record.outputs.end());
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const int v : touched) {
      Value& value = values_[at(v)];
      if (value.external || value.last_reader != n) continue;
      if (value.saves.empty()) {
        builder_.free(value.storage);
      } else {
        builder_.release(value.storage);
      }
    }
  }

  void backward() {
    std::map<int, StorageId> grad;  // of a value
    const int last = nodes_.back().outputs.front();
    grad[last] = builder_.op1({.name = "ones_like",
                               .creates = {values_[at(last)].bytes},
                               .phase = Phase::backward,
                               .kind = StorageKind::gradient});
    for (size_t i = nodes_.size(); i-- > 0;) {
      Record& record = nodes_[i];
      const Node& spec = record.spec;
      std::vector<StorageId> reads;
      const int result = record.outputs.empty() ? spec.overwrites_input : record.outputs.front();
      if (!spec.differentiable) continue;
      const auto upstream = grad.find(result);
      if (upstream == grad.end()) continue;
      reads.push_back(upstream->second);
      for (const auto& [v, save] : record.saves) {
        builder_.unpack(save);
        reads.push_back(values_[at(v)].storage);
      }
      SyntheticOp op{.name = spec.name + "_backward",
                     .ns = 2 * spec.ns,
                     .reads = reads,
                     .phase = Phase::backward,
                     .kind = StorageKind::gradient};
      op.temporaries = spec.temporaries;
      std::vector<int> receivers;
      for (const int v : spec.inputs) {
        if (v == spec.overwrites_input) continue;  // its gradient passes through
        const Value& value = values_[at(v)];
        if (!value.external && !differentiable(v)) continue;
        receivers.push_back(v);
        op.creates.push_back(value.bytes);
      }
      const auto created = builder_.op(op);
      std::vector<StorageId> unpacked;
      for (const auto& [v, save] : record.saves) {
        const StorageId s = values_[at(v)].storage;
        if (std::find(unpacked.begin(), unpacked.end(), s) != unpacked.end()) continue;
        unpacked.push_back(s);
        if (!values_[at(v)].external) builder_.release(s);
      }
      for (const auto& [v, save] : record.saves) {
        Value& value = values_[at(v)];
        builder_.drop_save(save);
        std::erase(value.saves, save);
        if (value.saves.empty() && !value.external) builder_.free(value.storage);
      }
      if (result != spec.overwrites_input) {
        builder_.free(upstream->second);
        grad.erase(result);
      }
      for (size_t r = 0; r < receivers.size(); ++r) accumulate(grad, receivers[r], created[r]);
    }
    for (const auto& [v, storage] : grad) {
      if (!values_[at(v)].external) builder_.free(storage);
    }
  }

  bool differentiable(int v) const {
    const int creator = creator_of(v);
    return creator >= 0 && nodes_[at(creator)].spec.differentiable;
  }

  int creator_of(int v) const {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const auto& outputs = nodes_[n].outputs;
      if (!outputs.empty() && outputs.front() == v) return static_cast<int>(n);
    }
    return -1;
  }

  void accumulate(std::map<int, StorageId>& grad, int v, StorageId fresh) {
    const Value& value = values_[at(v)];
    if (value.external) {
      gradients_.emplace_back(value.storage, fresh);
      bytes_of_[value.storage] = value.bytes;
      return;
    }
    const auto known = grad.find(v);
    if (known == grad.end()) {
      grad[v] = fresh;
      return;
    }
    builder_.op({.name = "accumulate",
                 .ns = 10,
                 .reads = {fresh},
                 .writes = {known->second},
                 .phase = Phase::backward});
    builder_.free(fresh);
  }

  TraceBuilder builder_;
  std::vector<Value> values_;
  std::vector<Record> nodes_;
  std::vector<std::pair<StorageId, StorageId>> gradients_;
  std::map<StorageId, int64_t> bytes_of_;
};

}  // namespace

Trace gpt_trace(const GptShape& shape) {
  Tape tape("gpt");
  const int64_t tokens = shape.batch * shape.sequence;
  const int64_t stream = tokens * shape.width * 4;
  const int64_t square = shape.batch * shape.heads * shape.sequence * shape.sequence * 4;
  const int64_t linear_ns = tokens * shape.width * shape.width / 16000 + 1;
  const int64_t pointwise_ns = stream / 8000 + 1;
  const int64_t square_ns = square / 8000 + 1;

  // Dropout: a mask drawn in place into an empty buffer, scaled in place, then multiplied.
  const auto dropout = [&](int x, int64_t bytes) {
    if (!shape.dropout) return x;
    const int64_t ns = bytes / 8000 + 1;
    const int mask =
        tape.node1({.name = "empty_like", .ns = 50, .creates = {bytes}, .differentiable = false});
    tape.node({.name = "bernoulli_",
               .ns = 4 * ns,
               .inputs = {mask},
               .overwrites_input = mask,
               .differentiable = false});
    tape.node({.name = "div_",
               .ns = ns,
               .inputs = {mask},
               .overwrites_input = mask,
               .differentiable = false});
    return tape.node1(
        {.name = "mul", .ns = ns, .inputs = {x, mask}, .creates = {bytes}, .saved_inputs = {mask}});
  };
  const auto linear = [&](int x, int64_t in, int64_t out) {
    const int weight = tape.parameter(in * out * 4);
    const int bias = tape.parameter(out * 4);
    const int y = tape.node1({.name = "mm",
                              .ns = linear_ns * in / shape.width * out / shape.width + 1,
                              .inputs = {x, weight},
                              .creates = {tokens * out * 4},
                              .saved_inputs = {x}});
    tape.node({.name = "add_",
               .ns = pointwise_ns * out / shape.width,
               .inputs = {y, bias},
               .overwrites_input = y});
    return y;
  };
  const auto layer_norm = [&](int x) {
    const int weight = tape.parameter(shape.width * 4);
    return tape.node1({.name = "layer_norm",
                       .ns = 2 * pointwise_ns,
                       .inputs = {x, weight},
                       .creates = {stream, tokens * 4, tokens * 4},
                       .saved_inputs = {x},
                       .saved_outputs = {1, 2}});
  };

  int x = tape.node1({.name = "embedding",
                      .ns = pointwise_ns,
                      .inputs = {tape.parameter(shape.vocabulary * shape.width * 4)},
                      .creates = {stream}});
  x = dropout(x, stream);
  for (int layer = 0; layer < shape.layers; ++layer) {
    const int normed = layer_norm(x);
    const int qkv = linear(normed, shape.width, 3 * shape.width);
    const int scores = tape.node1({.name = "bmm",
                                   .ns = linear_ns * shape.sequence / shape.width + 1,
                                   .inputs = {qkv},
                                   .creates = {square},
                                   .saved_inputs = {qkv},
                                   .temporaries = {stream}});
    const int softmax = tape.node1({.name = "softmax",
                                    .ns = 3 * square_ns,
                                    .inputs = {scores},
                                    .creates = {square},
                                    .saved_outputs = {0}});
    const int weights = dropout(softmax, square);
    const int mixed = tape.node1({.name = "bmm",
                                  .ns = linear_ns * shape.sequence / shape.width + 1,
                                  .inputs = {weights, qkv},
                                  .creates = {stream},
                                  .saved_inputs = {weights, qkv}});
    const int attended = dropout(linear(mixed, shape.width, shape.width), stream);
    x = tape.node1(
        {.name = "add", .ns = pointwise_ns, .inputs = {x, attended}, .creates = {stream}});
    const int hidden = linear(layer_norm(x), shape.width, 4 * shape.width);
    const int activated = tape.node1({.name = "gelu",
                                      .ns = 8 * pointwise_ns,
                                      .inputs = {hidden},
                                      .creates = {4 * stream},
                                      .saved_inputs = {hidden}});
    const int projected = dropout(linear(activated, 4 * shape.width, shape.width), stream);
    x = tape.node1(
        {.name = "add", .ns = pointwise_ns, .inputs = {x, projected}, .creates = {stream}});
  }
  const int logits = linear(layer_norm(x), shape.width, shape.vocabulary);
  const int64_t logit_bytes = tokens * shape.vocabulary * 4;
  const int log_probabilities = tape.node1({.name = "log_softmax",
                                            .ns = 3 * (logit_bytes / 8000 + 1),
                                            .inputs = {logits},
                                            .creates = {logit_bytes},
                                            .saved_outputs = {0}});
  tape.node1({.name = "nll_loss", .ns = 200, .inputs = {log_probabilities}, .creates = {4}});
  return tape.finish(shape.optimizer);
}

std::vector<StorageId> gpt_block_inputs(const Trace& trace) {
  // What the first layer norm of each block reads: every other layer norm, the last one left out.
  std::vector<StorageId> inputs;
  int norms = 0;
  for (const TraceOp& op : trace.ops) {
    if (op.name == "layer_norm" && norms++ % 2 == 0) inputs.push_back(op.inputs.at(0).storage);
  }
  inputs.pop_back();
  return inputs;
}

Trace llama_trace(const LlamaShape& shape) {
  Tape tape("llama");
  const auto bytes = [&](int64_t columns) { return shape.tokens * columns * 4; };
  const auto linear = [&](int x, int64_t in, int64_t out) {
    return tape.node1({.name = "mm",
                       .ns = shape.tokens * in * out / 16000 + 1,
                       .inputs = {x, tape.parameter(in * out * 4)},
                       .creates = {bytes(out)},
                       .saved_inputs = {x}});
  };
  const auto rms_norm = [&](int x) {
    return tape.node1({.name = "rms_norm",
                       .ns = bytes(shape.width) / 4000 + 1,
                       .inputs = {x, tape.parameter(shape.width * 4)},
                       .creates = {bytes(shape.width), shape.tokens * 4},
                       .saved_inputs = {x},
                       .saved_outputs = {1}});
  };
  const auto pointwise = [&](const char* name, std::vector<int> inputs, int64_t columns,
                             std::vector<int> saved) {
    return tape.node1({.name = name,
                       .ns = bytes(columns) / 8000 + 1,
                       .inputs = std::move(inputs),
                       .creates = {bytes(columns)},
                       .saved_inputs = std::move(saved)});
  };
  int x = tape.node1({.name = "embedding",
                      .ns = bytes(shape.width) / 8000 + 1,
                      .inputs = {tape.parameter(shape.vocabulary * shape.width * 4)},
                      .creates = {bytes(shape.width)}});
  for (int layer = 0; layer < shape.layers; ++layer) {
    const int normed = rms_norm(x);
    const int q = linear(normed, shape.width, shape.width);
    const int k = linear(normed, shape.width, shape.width);
    const int v = linear(normed, shape.width, shape.width);
    const int attended = tape.node1({.name = "scaled_dot_product_attention",
                                     .ns = shape.tokens * shape.tokens * shape.width / 8000 + 1,
                                     .inputs = {q, k, v},
                                     .creates = {bytes(shape.width), shape.tokens * 4},
                                     .saved_inputs = {q, k, v},
                                     .saved_outputs = {0, 1}});
    x = pointwise("add", {x, linear(attended, shape.width, shape.width)}, shape.width, {});
    const int normed_again = rms_norm(x);
    const int gate = linear(normed_again, shape.width, shape.hidden);
    const int up = linear(normed_again, shape.width, shape.hidden);
    const int opened = pointwise("silu", {gate}, shape.hidden, {gate});
    const int gated = pointwise("mul", {opened, up}, shape.hidden, {opened, up});
    x = pointwise("add", {x, linear(gated, shape.hidden, shape.width)}, shape.width, {});
  }
  const int logits = linear(rms_norm(x), shape.width, shape.vocabulary);
  const int log_probabilities = tape.node1({.name = "log_softmax",
                                            .ns = bytes(shape.vocabulary) / 3000 + 1,
                                            .inputs = {logits},
                                            .creates = {bytes(shape.vocabulary)},
                                            .saved_outputs = {0}});
  tape.node1({.name = "nll_loss", .ns = 200, .inputs = {log_probabilities}, .creates = {4}});
  return tape.finish(true);
}

Trace chain_trace(int length, int64_t bytes, int64_t ns) {
  Tape tape("chain");
  int y = tape.parameter(bytes);
  for (int i = 0; i < length; ++i) {
    y = tape.node1({.name = "f", .ns = ns, .inputs = {y}, .creates = {bytes}, .saved_inputs = {y}});
  }
  return tape.finish(false);
}

Trace unet_trace(int levels, int64_t bytes) {
  Tape tape("unet");
  const auto convolve = [&](std::vector<int> inputs, int64_t size) {
    inputs.push_back(tape.parameter(4096));
    std::vector<int> saved(inputs.begin(), inputs.end() - 1);
    const int y = tape.node1({.name = "conv",
                              .ns = size / 100,
                              .inputs = inputs,
                              .creates = {size},
                              .saved_inputs = saved,
                              .temporaries = {size / 2}});
    return tape.node1({.name = "relu",
                       .ns = size / 8000 + 1,
                       .inputs = {y},
                       .creates = {size},
                       .saved_outputs = {0}});
  };
  std::vector<int> skips;
  int64_t size = bytes;
  int x = convolve({tape.parameter(bytes / 8)}, size);
  for (int level = 0; level < levels; ++level) {
    x = convolve({convolve({x}, size)}, size);
    skips.push_back(x);
    size /= 2;
    x = tape.node1({.name = "pool",
                    .ns = size / 4000 + 1,
                    .inputs = {x},
                    .creates = {size, size / 2},
                    .saved_outputs = {1}});
  }
  x = convolve({x}, size);
  for (int level = levels; level-- > 0;) {
    size *= 2;
    x = tape.node1({.name = "upsample", .ns = size / 4000 + 1, .inputs = {x}, .creates = {size}});
    x = convolve({convolve({x, skips[at(level)]}, size)}, size);
  }
  tape.node1({.name = "loss", .ns = 100, .inputs = {x}, .creates = {4}, .saved_inputs = {x}});
  return tape.finish(true);
}

}  // namespace lowtide::testing
