#include "core/trace.h"

#include "core/hash.h"

namespace lowtide {

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::optimizer:
      return "optimizer";
    case Phase::other:
      return "other";
  }
  return "unknown";
}

const char* to_string(StorageKind kind) {
  switch (kind) {
    case StorageKind::activation:
      return "activation";
    case StorageKind::parameter:
      return "parameter";
    case StorageKind::gradient:
      return "gradient";
    case StorageKind::optimizer_state:
      return "optimizer_state";
    case StorageKind::buffer:
      return "buffer";
    case StorageKind::input:
      return "input";
    case StorageKind::temporary:
      return "temporary";
    case StorageKind::other:
      return "other";
  }
  return "unknown";
}

const char* to_string(EventKind kind) {
  switch (kind) {
    case EventKind::op_begin:
      return "op_begin";
    case EventKind::op_end:
      return "op_end";
    case EventKind::alloc:
      return "alloc";
    case EventKind::free:
      return "free";
    case EventKind::pack:
      return "pack";
    case EventKind::unpack:
      return "unpack";
    case EventKind::drop_save:
      return "drop_save";
    case EventKind::release:
      return "release";
  }
  return "unknown";
}

const char* to_string(Execution execution) {
  switch (execution) {
    case Execution::eager:
      return "eager";
    case Execution::joint:
      return "joint";
  }
  return "unknown";
}

std::string fingerprint_text(uint64_t fingerprint) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 0; i < 16; ++i) text[i] = kDigits[(fingerprint >> (60 - 4 * i)) & 15];
  return text;
}

uint64_t Trace::fingerprint() const {
  // Measured times are left out on purpose: two probes of one program must agree. So are the
  // program's name and the clock, which change neither numbers nor bytes.
  Hasher hash;
  hash.add(settings.device).add(settings.torch_version);
  hash.add(settings.intra_op_threads).add(settings.deterministic);
  if (execution != Execution::eager) hash.add(execution);
  hash.add(ops.size());
  for (const TraceOp& op : ops) hash.add(op.key).add(op.shape_key);
  return hash.value();
}

}  // namespace lowtide
