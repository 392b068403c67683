// The kind of an op, from a name that a graph made unique by a number.
#pragma once

#include <string_view>

namespace lowtide::planner {

// "convert_element_type_110" is the hundred-and-eleventh of its kind: the kind is what repeats.
[[nodiscard]] inline std::string_view op_kind(std::string_view name) {
  const size_t last = name.find_last_not_of("0123456789");
  if (last != std::string_view::npos && last > 0 && name[last] == '_') return name.substr(0, last);
  return name;
}

}  // namespace lowtide::planner
