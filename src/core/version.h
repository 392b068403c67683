// Version of this build of Lowtide, as written into traces. Keep equal to project(VERSION) in CMake
// (a unit test compares them).
#pragma once

namespace lowtide {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace lowtide
