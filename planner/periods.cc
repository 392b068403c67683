#include "planner/periods.h"

#include <cstdint>
#include <map>

#include "core/hash.h"
#include "core/index.h"

namespace lowtide::planner {
namespace {

constexpr int kRounds = 3;  // ops away that still count

// What an op is by itself; its key may tell its producers too and would then never repeat.
uint64_t kind_of(const TraceOp& op) {
  std::string_view name = op.name;
  const size_t last = name.find_last_not_of("0123456789");
  if (last != std::string_view::npos && last > 0 && name[last] == '_') name = name.substr(0, last);
  return Hasher().add(name).add(op.phase).add(op.shape_key).value();
}

}  // namespace

std::vector<std::vector<size_t>> alike_storages(const Trace& trace,
                                                const std::vector<StorageId>& order) {
  std::vector<uint64_t> ops;
  for (const TraceOp& op : trace.ops) ops.push_back(kind_of(op));
  std::vector<uint64_t> storages(trace.storages.size());
  for (size_t s = 0; s < storages.size(); ++s) {
    storages[s] = Hasher().add(trace.storages[s].bytes).add(trace.storages[s].kind).value();
  }
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint64_t> next_ops = ops;
    std::vector<uint64_t> next_storages = storages;
    for (size_t o = 0; o < ops.size(); ++o) {
      Hasher hash(ops[o]);
      for (const StorageRef& ref : trace.ops[o].inputs) {
        hash.add(storages[at(ref.storage)]);
        // Readers in any order.
        next_storages[at(ref.storage)] += Hasher(ops[o]).add(round).value();
      }
      for (const StorageId s : trace.ops[o].outputs) {
        hash.add(trace.storages[at(s)].bytes);
        next_storages[at(s)] ^= Hasher(ops[o]).add(round + kRounds).value();
      }
      next_ops[o] = hash.value();
    }
    ops.swap(next_ops);
    storages.swap(next_storages);
  }
  std::map<uint64_t, std::vector<size_t>> groups;
  for (size_t i = 0; i < order.size(); ++i) groups[storages[at(order[i])]].push_back(i);
  std::vector<std::vector<size_t>> alike;
  std::vector<char> told(order.size());
  for (size_t i = 0; i < order.size(); ++i) {  // by first member: the same on every machine
    if (told[i]) continue;
    const std::vector<size_t>& group = groups[storages[at(order[i])]];
    for (const size_t member : group) told[member] = 1;
    if (group.size() > 1) alike.push_back(group);
  }
  return alike;
}

}  // namespace lowtide::planner
