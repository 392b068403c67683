// Allocate + free against torch's own CPU allocation, size by size, interleaved.
//
// Ours runs with a ledger sink attached, as in a probe. The peer is c10::alloc_cpu / free_cpu where
// torch is built in, else posix_memalign / free at 64 bytes, which is what it does. One byte per page
// is touched, so that memory that is fetched anew from the system is paid for. Of each size the
// fastest of 300 batches of thread CPU time counts. Every 20 batches both give their memory back to
// the system (untimed) and start on other pages: on which cache sets the pages of one mapping happen
// to lie decides up to 20 % of the time of the large sizes.
//
//   allocator_bench [--json FILE] [--batches N]     exit 1: some size is slower than 1.05 x the peer
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "hooks/backend_cpu.h"
#include "hooks/caching_core.h"
#include "profiler/cpu_clock.h"

#ifdef LOWTIDE_BENCH_TORCH
#include <c10/core/impl/alloc_cpu.h>
#endif

namespace {

using lowtide::hooks::CachingCore;
using lowtide::profiler::ClockKind;
using lowtide::profiler::now_ns;

constexpr double kBound = 1.05;

class CountingSink final : public lowtide::hooks::LedgerSink {
 public:
  void on_alloc(const lowtide::hooks::MemoryEvent& event) noexcept override {
    live_ += event.requested_bytes;
  }
  void on_free(const lowtide::hooks::MemoryEvent& event) noexcept override {
    live_ -= event.requested_bytes;
  }
  [[nodiscard]] int64_t live() const { return live_; }

 private:
  int64_t live_ = 0;
};

#ifdef LOWTIDE_BENCH_TORCH
constexpr const char* kPeer = "c10::alloc_cpu";
void* peer_allocate(size_t bytes) { return c10::alloc_cpu(bytes); }
void peer_free(void* block) { c10::free_cpu(block); }
#else
constexpr const char* kPeer = "posix_memalign";
void* peer_allocate(size_t bytes) {
  void* block = nullptr;
  return posix_memalign(&block, 64, bytes) == 0 ? block : nullptr;
}
void peer_free(void* block) { std::free(block); }
#endif

void touch(void* block, size_t bytes) {
  auto* const data = static_cast<volatile char*>(block);
  for (size_t i = 0; i < bytes; i += 4096) data[i] = 1;
}

template <typename Allocate, typename Free>
double batch_ns(size_t bytes, int pairs, Allocate allocate, Free release) {
  const int64_t begin = now_ns(ClockKind::thread_cpu);
  for (int i = 0; i < pairs; ++i) {
    void* const block = allocate(bytes);
    touch(block, bytes);
    release(block);
  }
  return static_cast<double>(now_ns(ClockKind::thread_cpu) - begin) / pairs;
}

struct Row {
  size_t bytes = 0;
  double ours_ns = std::numeric_limits<double>::max();
  double peer_ns = std::numeric_limits<double>::max();
  [[nodiscard]] double ratio() const { return ours_ns / peer_ns; }
};

Row measure(CachingCore& core, size_t bytes, int batches) {
  const int pairs = std::clamp(static_cast<int>((1 << 20) / bytes), 4, 500);
  const auto allocate = [&core](size_t size) { return core.allocate(size); };
  const auto release = [&core](void* block) { core.free(block); };
  Row row{.bytes = bytes};
  for (int batch = 0; batch < batches; ++batch) {
    if (batch % 20 == 0) {
      core.trim();
      malloc_trim(0);
      batch_ns(bytes, 1, allocate, release);
      batch_ns(bytes, 1, peer_allocate, peer_free);
    }
    // Who goes first changes, so that neither always finds the other's cache lines.
    if (batch % 2 == 0) row.ours_ns = std::min(row.ours_ns, batch_ns(bytes, pairs, allocate, release));
    row.peer_ns = std::min(row.peer_ns, batch_ns(bytes, pairs, peer_allocate, peer_free));
    if (batch % 2 == 1) row.ours_ns = std::min(row.ours_ns, batch_ns(bytes, pairs, allocate, release));
  }
  return row;
}

void write_json(const std::string& path, const std::vector<Row>& rows) {
  std::ofstream out(path);
  out << "{\"bench\": \"allocator\", \"peer\": \"" << kPeer << "\", \"bound\": " << kBound
      << ", \"rows\": [";
  for (size_t i = 0; i < rows.size(); ++i) {
    out << (i == 0 ? "" : ", ") << "{\"bytes\": " << rows[i].bytes
        << ", \"ours_ns\": " << rows[i].ours_ns << ", \"peer_ns\": " << rows[i].peer_ns
        << ", \"ratio\": " << rows[i].ratio() << "}";
  }
  out << "]}\n";
}

}  // namespace

int main(int argc, char** argv) {
  std::string json;
  int batches = 300;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    if (std::strcmp(argv[i], "--batches") == 0) batches = std::max(1, std::atoi(argv[i + 1]));
  }

  CachingCore core(lowtide::hooks::make_cpu_backend());
  CountingSink sink;
  core.set_sink(&sink);
  std::vector<Row> rows;
  std::printf("%10s %12s %12s %8s   peer: %s\n", "bytes", "ours ns", "peer ns", "ratio", kPeer);
  int slower = 0;
  for (size_t bytes = 64; bytes <= size_t{8} << 20; bytes *= 2) {
    rows.push_back(measure(core, bytes, batches));
    const Row& row = rows.back();
    slower += row.ratio() > kBound ? 1 : 0;
    std::printf("%10zu %12.1f %12.1f %8.3f\n", row.bytes, row.ours_ns, row.peer_ns, row.ratio());
  }
  core.set_sink(nullptr);
  if (!json.empty()) write_json(json, rows);
  std::printf("%s allocator pair: %d of %zu sizes slower than %.2f x %s (bound 0)\n",
              slower == 0 ? "PASS" : "FAIL", slower, rows.size(), kBound, kPeer);
  return slower == 0 && sink.live() == 0 ? 0 : 1;
}
