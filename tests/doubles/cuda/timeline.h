// Order on the double's devices: streams, events, the clock, and what is ordered before what.
//
// Order is kept in vector clocks: each piece of work has a ticket (1, 2, 3... on its stream), and
// for each stream it is known up to which ticket of each other stream its next work waits. The host
// knows work to be complete only after it has waited for it or a query said so; that the clock has
// passed it is luck, and no misuse is excused by luck.
//
// Everything here is Locked. Handles are checked: a handle that does not live is refused.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base.h"

namespace cuda_double {

struct Capture;
using VectorClock = std::vector<uint64_t>;  // ticket by number of stream

}  // namespace cuda_double

struct CUstream_st {
  int number = 0;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  uint64_t issued = 0;                            // ticket of the newest work
  uint64_t due = 0;                               // tick at which all of it is complete
  cuda_double::VectorClock before;                // what of other streams the next work waits for
  std::shared_ptr<cuda_double::Capture> capture;  // null: the stream does not capture
};

struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  bool recorded = false;
  int stream = 0;
  uint64_t ticket = 0;
  uint64_t due = 0;
  cuda_double::VectorClock before;
  std::shared_ptr<cuda_double::Capture> capture;  // recorded there, not null: no query, no wait
};

namespace cuda_double {

class Timeline {
 public:
  static Timeline& instance();

  cudaStream_t create_stream(int device, unsigned flags, int priority);
  bool destroy_stream(cudaStream_t stream);
  // Null for a handle that does not live. 0, cudaStreamLegacy and cudaStreamPerThread are the
  // default stream of the thread's current device.
  cudaStream_t find(cudaStream_t handle) const;
  cudaEvent_t create_event(int device, unsigned flags);
  bool destroy_event(cudaEvent_t event);
  bool lives(cudaEvent_t event) const;

  // Puts a piece of work on the stream; its ticket.
  uint64_t issue(CUstream_st& stream);
  void record(CUevent_st& event, const CUstream_st& stream);
  void wait(CUstream_st& stream, const CUevent_st& event);

  // Moves the clock by one. Complete means that the host now knows so.
  bool query(const CUstream_st& stream);
  bool query(const CUevent_st& event);
  void synchronize(const CUstream_st& stream);
  void synchronize(const CUevent_st& event);
  void synchronize_device(int device);

  bool host_knows_complete(int stream, uint64_t ticket) const;
  bool ordered_before(int stream, uint64_t ticket, const CUstream_st& next) const;

  // Its streams capture no more; its events stay without meaning.
  void end_capture(const std::shared_ptr<Capture>& capture);

  void set_delay(uint64_t ticks) { delay_ = ticks; }
  void advance(uint64_t ticks) { now_ += ticks; }

 private:
  Timeline();
  void observe(int stream, uint64_t ticket, const VectorClock& before, uint64_t due);

  uint64_t now_ = 0;  // ticks
  uint64_t delay_;    // ticks
  VectorClock observed_;
  int next_number_ = 0;
  std::vector<std::unique_ptr<CUstream_st>> default_streams_;  // by device
  std::unordered_map<cudaStream_t, std::unique_ptr<CUstream_st>> streams_;
  std::unordered_map<cudaEvent_t, std::unique_ptr<CUevent_st>> events_;
};

// The calling thread's device.
int current_device();

}  // namespace cuda_double
