// What Lowtide knows of an operator before it runs, from its schema, its tags and the op rules.
//
// Built once per operator and cached for the life of the process; `op_info_of` is thread-safe and
// costs a few ns when the calling thread has seen the operator before.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>

namespace lowtide::runtime {

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& op);

  c10::OperatorHandle handle;
  std::string name;  // "aten::add.Tensor"
  uint64_t name_hash = 0;
  uint32_t arguments = 0;
  uint32_t returns = 0;
  uint64_t writes = 0;         // bit i: argument i is written in place, by schema or by rule
  uint64_t hidden_writes = 0;  // of these, the ones that the schema hides
  uint64_t overwrites = 0;     // of these, the ones whose earlier bytes do not matter (copy_, out=)
  // Outputs do not depend on the written arguments' earlier values (batch norm's running
  // statistics).
  bool writes_only_side_state = false;
  int32_t training_argument =
      -1;                      // side state is written only if this flag is set, else it is read
  bool random = false;         // draws from a generator
  bool metadata_only = false;  // reads shapes of tensor arguments, never their bytes (empty_like)
  bool empty_factory = false;  // leaves its output uninitialised
  uint64_t unspecified_results = 0;  // bit i: result i has bytes that nothing defines or reads
  bool collective = false;
  bool data_dependent = false;
  bool effect = false;
  bool replayable = true;
  const char* keep_reason = "";  // why not replayable

  // What this call writes: bits of arguments.
  [[nodiscard]] uint64_t writes_of(c10::ArrayRef<c10::IValue> call) const {
    const bool only_reads =
        training_argument >= 0 && !call[static_cast<size_t>(training_argument)].toBool();
    return only_reads ? 0 : writes;
  }
};

[[nodiscard]] const OpInfo& op_info_of(const c10::OperatorHandle& op);

}  // namespace lowtide::runtime
