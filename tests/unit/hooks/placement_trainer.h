// A made-up training program, as an allocator sees it: weights, then steps of a forward that keeps
// activations, a backward that frees them, gradients that live to the step's end, a loss that lives
// until the next one is there, and optimizer state that the first step makes. It allocates through
// whatever it is given.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "hooks/device_backend.h"

namespace lowtide::hooks {

class PlacementTrainer {
 public:
  using Allocate = std::function<void*(int64_t bytes, DeviceStream stream)>;
  using Free = std::function<void(void* address)>;
  static constexpr int64_t kKiB = 1024;

  PlacementTrainer(Allocate allocate, Free free, DeviceStream stream = nullptr)
      : allocate_(std::move(allocate)), free_(std::move(free)), stream_(stream) {}
  ~PlacementTrainer() {
    for (auto* blocks : {&weights_, &gradients_, &states_, &loss_}) free_all(*blocks);
  }
  PlacementTrainer(const PlacementTrainer&) = delete;
  PlacementTrainer& operator=(const PlacementTrainer&) = delete;

  void build() {
    for (int i = 0; i < kLayers; ++i) weights_.push_back(allocate_(weight_bytes(i), stream_));
  }
  // `scale`: of activations, in percent. `extra`: an op more in the middle of the forward.
  void step(int64_t scale = 100, bool extra = false) {
    std::vector<void*> kept = forward(scale, extra);
    void* loss = allocate_(4, stream_);  // the last one is still there
    free_all(loss_);
    loss_.push_back(loss);
    void* carried = allocate_(activation_bytes(kLayers) * scale / 100, stream_);
    for (int i = kLayers; i-- > 0;) {
      gradients_.push_back(allocate_(weight_bytes(i), stream_));
      void* const next = allocate_(activation_bytes(i) * scale / 100, stream_);
      free_(carried);
      carried = next;
      free_(kept.back());
      kept.pop_back();
    }
    free_(carried);
    if (states_.empty()) {
      for (int i = 0; i < 2 * kLayers; ++i) {
        states_.push_back(allocate_(weight_bytes(i / 2), stream_));
      }
    }
    void* const scratch = allocate_(3 * weight_bytes(0), stream_);
    free_(scratch);
    free_all(gradients_);
  }
  void evaluate() {
    std::vector<void*> kept = forward(100, false);
    free_all(kept);
  }

 private:
  static constexpr int kLayers = 12;
  static int64_t weight_bytes(int layer) { return (96 + 24 * (layer % 3)) * kKiB; }
  static int64_t activation_bytes(int layer) { return (130 + 10 * (layer % 5)) * kKiB + 300; }

  std::vector<void*> forward(int64_t scale, bool extra) {
    std::vector<void*> kept;
    for (int i = 0; i < kLayers; ++i) {
      void* const scratch = allocate_((2 * activation_bytes(i) + 700) * scale / 100, stream_);
      kept.push_back(allocate_(activation_bytes(i) * scale / 100, stream_));
      free_(scratch);
      if (extra && i == kLayers / 2) free_(allocate_(77 * kKiB, stream_));
    }
    return kept;
  }
  void free_all(std::vector<void*>& blocks) {
    for (void* block : blocks) free_(block);
    blocks.clear();
  }

  const Allocate allocate_;
  const Free free_;
  const DeviceStream stream_;
  std::vector<void*> weights_, gradients_, states_, loss_;
};

}  // namespace lowtide::hooks
