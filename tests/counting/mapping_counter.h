// An independent count of the memory that Lowtide takes from the system: what its reserved bytes
// are judged by.
//
// The program that links this defines mmap and munmap itself, which wins over the C library for
// every library of the process, and counts the writable anonymous private mappings that are made
// from Lowtide's shared libraries (told by the return address: the loaded object it lies in is
// named liblowtide*). Nothing of the product is asked and no marker is needed, so a mapping that
// the product forgets to count is seen here. The C library's malloc does not pass through these
// symbols. Bytes, by whole pages; unmapping part of a mapping takes that part off.
// Thread-safe. Not to be used across a fork.
#pragma once

#include <cstdint>

namespace lowtide::counting {

struct MappedBytes {
  int64_t current = 0;
  int64_t peak = 0;
};

[[nodiscard]] MappedBytes mapped_bytes();
void reset_mapped_peak();  // peak = current

}  // namespace lowtide::counting
