// Random legal programs: what a user's step may do to the planner's rules.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/index.h"
#include "support/synthetic_trace.h"

namespace lowtide::testing {

Trace random_trace(uint64_t seed, int forward_ops) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const auto any = [&](const std::vector<StorageId>& items) {
    return at(below(static_cast<int64_t>(items.size())));
  };
  TraceBuilder b("random");
  std::vector<StorageId> values;  // user variables
  const StorageId weight = b.resident(1 + below(1000));
  values.push_back(b.resident(1 + below(1000), StorageKind::input));
  struct Save {
    SaveId id;
    StorageId storage;
  };
  std::vector<Save> saves;
  std::map<StorageId, int> save_count;
  std::map<StorageId, bool> created;
  for (int i = 0; i < forward_ops; ++i) {
    SyntheticOp op{.name = "op" + std::to_string(i), .ns = 1 + below(100)};
    for (int64_t r = 1 + below(3); r > 0; --r) {
      const StorageId s = values[any(values)];
      if (std::find(op.reads.begin(), op.reads.end(), s) == op.reads.end()) op.reads.push_back(s);
    }
    if (below(2) == 0) op.reads.push_back(weight);
    if (below(3) == 0) op.temporaries.push_back(1 + below(600));
    const StorageId written = op.reads.front();
    if (created[written] && below(4) == 0) {
      op.writes = {written};
      op.overwrites = below(3) == 0;
      if (op.overwrites) std::erase(op.reads, written);
    }
    if (op.writes.empty() || below(3) == 0) {
      for (int64_t n = 1 + (below(4) == 0 ? 1 : 0); n > 0; --n)
        op.creates.push_back(1 + below(1000));
    }
    for (const StorageId s : b.op(op)) {
      values.push_back(s);
      created[s] = true;
    }
    for (int64_t n = below(3); n > 0; --n) {
      const StorageId s = values[any(values)];
      if (!created[s]) continue;
      saves.push_back({b.pack(s), s});
      ++save_count[s];
    }
    // The user lets some variables go.
    while (values.size() > 2 && below(3) == 0) {
      const auto index = 1 + below(static_cast<int64_t>(values.size()) - 1);
      const StorageId s = values[at(index)];
      if (!created[s]) break;
      values.erase(values.begin() + index);
      if (save_count[s] > 0) {
        b.release(s);
      } else {
        b.free(s);
      }
    }
  }
  std::vector<StorageId> late;  // still owned by the user during some of the backward
  for (const StorageId s : values) {
    if (!created[s]) continue;
    if (save_count[s] == 0) {
      b.free(s);
    } else if (below(3) == 0) {
      late.push_back(s);
    } else {
      b.release(s);
    }
  }
  const bool twice = below(4) == 0;
  for (int pass = 0; pass < (twice ? 2 : 1); ++pass) {
    const bool final_pass = pass + 1 == (twice ? 2 : 1);
    size_t position = saves.size();
    while (position > 0) {
      const size_t batch = std::min<size_t>(position, 1 + static_cast<size_t>(below(2)));
      SyntheticOp op{.name = "backward",
                     .ns = 1 + below(50),
                     .phase = Phase::backward,
                     .kind = StorageKind::gradient};
      std::vector<Save> read(saves.begin() + static_cast<int64_t>(position - batch),
                             saves.begin() + static_cast<int64_t>(position));
      position -= batch;
      for (const Save& save : read) {
        b.unpack(save.id);
        op.reads.push_back(save.storage);
      }
      op.creates = {1 + below(500)};
      op.temporaries = {1 + below(300)};
      const StorageId gradient = b.op1(op);
      std::vector<StorageId> released;
      for (const Save& save : read) {
        const bool is_late = std::find(late.begin(), late.end(), save.storage) != late.end();
        if (!is_late &&
            std::find(released.begin(), released.end(), save.storage) == released.end()) {
          b.release(save.storage);
          released.push_back(save.storage);
        }
      }
      if (!late.empty() && below(2) == 0) {
        b.release(late.back());
        if (save_count[late.back()] == 0) b.free(late.back());
        late.pop_back();
      }
      for (const Save& save : read) {
        if (!final_pass) continue;
        b.drop_save(save.id);
        const bool is_late = std::find(late.begin(), late.end(), save.storage) != late.end();
        if (--save_count[save.storage] == 0 && !is_late && b.alive(save.storage))
          b.free(save.storage);
      }
      if (below(2) == 0) b.free(gradient);
    }
  }
  for (const StorageId s : late) b.free(s);
  return b.finish();
}

}  // namespace lowtide::testing
