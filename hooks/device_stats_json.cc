#include "hooks/device_stats_json.h"

#include <string_view>

namespace lowtide::hooks {
namespace {

struct NamedFlow {
  std::string_view name;
  Flow PoolStats::* flow;
};

constexpr NamedFlow kNamedFlows[] = {
    {"allocation", &PoolStats::blocks},
    {"segment", &PoolStats::segments},
    {"active", &PoolStats::active},
    {"inactive_split", &PoolStats::inactive_split},
    {"allocated_bytes", &PoolStats::rounded},
    {"reserved_bytes", &PoolStats::reserved},
    {"active_bytes", &PoolStats::active_bytes},
    {"inactive_split_bytes", &PoolStats::inactive_split_bytes},
    {"requested_bytes", &PoolStats::requested},
};

class FlatJson {
 public:
  void add(std::string_view name, int64_t value) {
    text_ += text_.empty() ? "{\"" : ", \"";
    text_ += name;
    text_ += "\": ";
    text_ += std::to_string(value);
  }
  void add(const std::string& name, const Flow& flow) {
    add(name + ".current", flow.current);
    add(name + ".peak", flow.peak);
    add(name + ".allocated", flow.allocated);
    add(name + ".freed", flow.freed);
  }
  [[nodiscard]] std::string finish() && { return std::move(text_) + "}"; }

 private:
  std::string text_;
};

}  // namespace

std::string to_json(const DeviceStats& stats, int64_t limit, int64_t invalid_frees) {
  FlatJson json;
  for (const auto& [name, flow] : kNamedFlows) {
    json.add(std::string(name) + ".all", stats.*flow);
    json.add(std::string(name) + ".small_pool", stats.small_pool.*flow);
    json.add(std::string(name) + ".large_pool", stats.large_pool.*flow);
  }
  json.add("oversize_allocations", Flow{});
  json.add("oversize_segments", Flow{});
  json.add("max_split_size", int64_t{-1});  // none
  json.add("num_alloc_retries", stats.alloc_retries);
  json.add("num_ooms", stats.failures);
  json.add("num_oom_rejections", int64_t{0});
  json.add("num_sync_all_streams", stats.stream_waits);
  json.add("num_device_alloc", stats.segment_acquires);
  json.add("num_device_free", stats.segment_returns);
  json.add("lowtide.cached_bytes", stats.cached);
  json.add("lowtide.waiting_bytes", stats.waiting);
  json.add("lowtide.limit_bytes", limit);  // INT64_MAX = none
  json.add("lowtide.limit_hits", stats.limit_hits);
  json.add("lowtide.pressure_bytes", stats.pressure_bytes);
  json.add("lowtide.invalid_frees", invalid_frees);
  return std::move(json).finish();
}

}  // namespace lowtide::hooks
