#include "runtime/op_info.h"

#include <ATen/core/enum_tag.h>

#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "core/hash.h"

namespace lowtide::runtime {
namespace {

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// --- Op rules. Each table is one rule; add a name to teach Lowtide an operator. ---

// Written although the schema does not say so: running statistics in training mode.
struct HiddenWrite {
  std::string_view op;
  uint64_t arguments;  // bit mask
};
constexpr std::array kHiddenWrites = {
    HiddenWrite{"aten::native_batch_norm", 0b11000},
    HiddenWrite{"aten::cudnn_batch_norm", 0b11000},
    HiddenWrite{"aten::miopen_batch_norm", 0b11000},
};

// The written arguments are side state that the outputs of a training step do not read.
struct SideState {
  std::string_view op;
  int32_t training_argument;  // -1 = the op always trains
};
constexpr std::array kSideState = {
    SideState{"aten::native_batch_norm", 5},        SideState{"aten::cudnn_batch_norm", 5},
    SideState{"aten::miopen_batch_norm", 5},        SideState{"aten::_native_batch_norm_legit", 5},
    SideState{"aten::_batch_norm_with_update", -1}, SideState{"aten::batch_norm_update_stats", -1},
};

// Tensor arguments give sizes, dtype and device only.
constexpr std::array<std::string_view, 12> kMetadataOnly = {
    "aten::empty_like", "aten::zeros_like", "aten::ones_like",         "aten::full_like",
    "aten::rand_like",  "aten::randn_like", "aten::randint_like",      "aten::new_empty",
    "aten::new_zeros",  "aten::new_ones",   "aten::new_empty_strided", "aten::new_full",
};

constexpr std::array<std::string_view, 7> kEmptyFactories = {
    "aten::empty",          "aten::empty_like",           "aten::empty_strided",
    "aten::new_empty",      "aten::_efficientzerotensor", "aten::new_empty_strided",
    "aten::empty_permuted",
};

// In place, but nothing of the earlier bytes is left. `out=` arguments are so too.
constexpr std::array<std::string_view, 10> kOverwrites = {
    "aten::copy_",    "aten::fill_",      "aten::zero_",   "aten::bernoulli_",
    "aten::uniform_", "aten::normal_",    "aten::random_", "aten::exponential_",
    "aten::cauchy_",  "aten::log_normal_"};

// Results that are scratch space of the backward kernel, partly left as allocated.
struct Unspecified {
  std::string_view op;
  uint64_t results;  // bit mask
};
constexpr std::array kUnspecified = {
    Unspecified{"aten::mkldnn_rnn_layer", 0b1000},
    Unspecified{"aten::_ctc_loss", 0b10},  // beyond each sequence's length
};

constexpr std::array<std::string_view, 4> kMovesStorage = {"aten::resize_", "aten::resize_as_",
                                                           "aten::set_", "aten::record_stream"};

// In place by schema, but only sizes, strides or autograd state change, never bytes.
constexpr std::array<std::string_view, 11> kWritesNoBytes = {
    "aten::detach_",     "aten::requires_grad_", "aten::squeeze_",   "aten::unsqueeze_",
    "aten::t_",          "aten::transpose_",     "aten::swapaxes_",  "aten::swapdims_",
    "aten::as_strided_", "aten::rename_",        "aten::retain_grad"};

template <typename Table>
bool listed(const Table& table, std::string_view base) {
  for (const std::string_view name : table) {
    if (name == base) {
      return true;
    }
  }
  return false;
}

bool takes_generator(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    c10::TypePtr type = argument.type();
    if (type->kind() == c10::TypeKind::OptionalType) {
      type = type->expectRef<c10::OptionalType>().getElementType();
    }
    if (type->kind() == c10::TypeKind::GeneratorType) {
      return true;
    }
  }
  return false;
}

}  // namespace

OpInfo::OpInfo(const c10::OperatorHandle& op) : handle(op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string base = schema.name();
  name = schema.overload_name().empty() ? base : base + "." + schema.overload_name();
  name_hash = Hasher().add(std::string_view(name)).value();
  arguments = static_cast<uint32_t>(schema.arguments().size());
  returns = static_cast<uint32_t>(schema.returns().size());
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      if (i < 64) {
        writes |= uint64_t{1} << i;
        if (schema.arguments()[i].is_out() || listed(kOverwrites, base)) {
          overwrites |= uint64_t{1} << i;
        }
      } else {
        replayable = false;
        keep_reason = "writes an argument beyond the 64th";
      }
    }
  }
  if (listed(kWritesNoBytes, base)) {
    writes = 0;
  }
  for (const HiddenWrite& rule : kHiddenWrites) {
    if (base == rule.op) {
      hidden_writes = rule.arguments;
      writes |= rule.arguments;
    }
  }
  for (const Unspecified& rule : kUnspecified) {
    if (base == rule.op) {
      unspecified_results = rule.results;
    }
  }
  for (const SideState& rule : kSideState) {
    if (base == rule.op) {
      writes_only_side_state = true;
      // The overload without running statistics has no such flag there.
      const auto flag = static_cast<size_t>(rule.training_argument);
      if (rule.training_argument >= 0 && writes != 0 && flag < schema.arguments().size() &&
          schema.arguments()[flag].type()->kind() == c10::TypeKind::BoolType) {
        training_argument = rule.training_argument;
      }
    }
  }
  metadata_only = listed(kMetadataOnly, base);
  empty_factory = listed(kEmptyFactories, base);
  random = op.hasTag(at::Tag::nondeterministic_seeded) || takes_generator(schema);
  data_dependent = op.hasTag(at::Tag::data_dependent_output);
  collective = starts_with(base, "c10d::") || starts_with(base, "_c10d_functional::") ||
               starts_with(base, "c10d_functional::") || starts_with(base, "fsdp::");
  effect = starts_with(base, "aten::_assert") || starts_with(base, "aten::_print") ||
           starts_with(base, "prim::");
  if (collective) {
    replayable = false;
    keep_reason = "collective: recomputing it would communicate again";
  } else if (listed(kMovesStorage, base)) {
    replayable = false;
    keep_reason = "changes what the storage is, not its values";
  } else if (effect) {
    replayable = false;
    keep_reason = "has an effect outside its outputs";
  }
}

const OpInfo& op_info_of(const c10::OperatorHandle& op) {
  struct CacheEntry {
    const c10::FunctionSchema* schema = nullptr;
    const OpInfo* info = nullptr;
  };
  constexpr size_t kEntries = 512;
  thread_local std::array<CacheEntry, kEntries> cache;

  const c10::FunctionSchema* schema = &op.schema();
  CacheEntry& entry = cache[(reinterpret_cast<uintptr_t>(schema) >> 6) % kEntries];
  if (entry.schema == schema) [[likely]] {
    return *entry.info;
  }
  // Leaked on purpose: hooks of other threads may still ask while static objects are destroyed.
  static auto* mutex = new std::mutex();
  static auto* table =
      new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<const OpInfo>>();
  const std::lock_guard lock(*mutex);
  std::unique_ptr<const OpInfo>& info = (*table)[schema];
  if (info == nullptr) {
    info = std::make_unique<const OpInfo>(op);
  }
  entry = {schema, info.get()};
  return *info;
}

}  // namespace lowtide::runtime
