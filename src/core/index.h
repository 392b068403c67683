// An id of an op or a storage as an index into a vector.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide {

// `id` is not negative.
inline size_t at(int64_t id) { return static_cast<size_t>(id); }

}  // namespace lowtide
