// Traces made by hand, for tests: an event-by-event builder and ready-made programs.
//
// The builder keeps the books that capture keeps at run time (writers, versions, op counts at pack
// and unpack), so that a test states only what the program does. Bytes are requested bytes; rounded
// bytes are the next multiple of 512. Times are ns. Everything is deterministic. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/trace.h"

namespace lowtide::testing {

// One operator: what it reads, creates, overwrites, and allocates and frees on the way.
struct SyntheticOp {
  std::string name = "op";
  int64_t ns = 1;
  std::vector<StorageId> reads = {};
  std::vector<int64_t> creates = {};      // bytes of each output
  std::vector<StorageId> writes = {};     // in place; also read unless `overwrites`
  std::vector<int64_t> temporaries = {};  // bytes; all live together while the op runs
  Phase phase = Phase::forward;
  StorageKind kind = StorageKind::activation;  // of the outputs
  bool overwrites = false;
};

class TraceBuilder {
 public:
  explicit TraceBuilder(std::string name = "synthetic");

  // A storage that is alive when the step begins.
  StorageId resident(int64_t bytes, StorageKind kind = StorageKind::parameter);
  // Runs an op: begin, outputs and temporaries allocated, temporaries freed, end. Returns outputs.
  std::vector<StorageId> op(const SyntheticOp& spec);
  StorageId op1(const SyntheticOp& spec);  // the only output
  SaveId pack(StorageId storage);
  void unpack(SaveId save);
  void drop_save(SaveId save);
  void release(StorageId storage);
  void free(StorageId storage);
  void never_drop(StorageId storage, std::string reason);

  [[nodiscard]] int32_t last_event() const {
    return static_cast<int32_t>(trace_.events.size()) - 1;
  }
  [[nodiscard]] bool alive(StorageId storage) const {
    return alive_[static_cast<size_t>(storage)] != 0;
  }
  // Fills derived fields (recomputable, unpack order, peaks, step time) and hands the trace out.
  [[nodiscard]] Trace finish();

 private:
  StorageId add_storage(int64_t bytes, StorageKind kind);
  void event(EventKind kind, int32_t id);

  Trace trace_;
  std::vector<char> alive_;
  std::vector<std::string> reasons_;
  int32_t unpacks_ = 0;
};

struct GptShape {
  int layers = 4;
  int64_t batch = 4;
  int64_t sequence = 128;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t vocabulary = 128;
  bool dropout = true;
  bool optimizer = true;
};

// A GPT step in fp32 as eager training runs it: unfused attention with dropout masks, GELU,
// in-place bias adds, layer norms with small statistics, gradients that live to the optimizer.
[[nodiscard]] Trace gpt_trace(const GptShape& shape = {});
// The residual stream at each block's input, in order: what hand-written recomputation keeps.
[[nodiscard]] std::vector<StorageId> gpt_block_inputs(const Trace& trace);

struct LlamaShape {
  int layers = 6;
  int64_t tokens = 512;
  int64_t width = 64;
  int64_t hidden = 172;
  int64_t vocabulary = 256;
};

// A Llama-like step in fp32: RMS norms, three projections, fused attention, a gated MLP whose wide
// values are all saved.
[[nodiscard]] Trace llama_trace(const LlamaShape& shape = {});

// y[i] = f(y[i-1]); every y is saved for its reader and unpacked in reverse order.
[[nodiscard]] Trace chain_trace(int length, int64_t bytes = 1000, int64_t ns = 100);
// Encoder and decoder with long skips; the widest tensors are at both ends.
[[nodiscard]] Trace unet_trace(int levels, int64_t bytes = 1 << 20);
// Any legal program: shared reads, in-place chains, several outputs and saves, temporaries, late
// releases, backward run once or twice (as retain_graph does), graphs stacked.
[[nodiscard]] Trace random_trace(uint64_t seed, int forward_ops = 12);

}  // namespace lowtide::testing
