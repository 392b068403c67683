// What `lowtide run` hands to the library it preloads: names of environment variables. The command
// writes them, the runtime reads them; a user who sets LD_PRELOAD by hand may set them too.
#pragma once

namespace lowtide::run_environment {

inline constexpr const char* kBudget = "LOWTIDE_BUDGET";        // "2GiB", bytes, "auto", "none"
inline constexpr const char* kReserve = "LOWTIDE_RESERVE";      // bytes to leave free
inline constexpr const char* kPlan = "LOWTIDE_PLAN";            // plan file to keep to
inline constexpr const char* kDirectory = "LOWTIDE_DIRECTORY";  // of trace and plan files
inline constexpr const char* kName = "LOWTIDE_NAME";            // first part of their names
inline constexpr const char* kOnInfeasible = "LOWTIDE_ON_INFEASIBLE";  // "stop" or "continue"
inline constexpr const char* kVerbose = "LOWTIDE_VERBOSE";             // "1": phase lines on stderr

// For the library that watches a program's CUDA memory (hooks/cuda_preload_process.h).
inline constexpr const char* kCudaReport = "LOWTIDE_CUDA_REPORT";  // file; "%p" is the process
inline constexpr const char* kCudaFollow = "LOWTIDE_CUDA_FOLLOW";  // "1": also what it starts
inline constexpr const char* kCudaFirstProcess = "LOWTIDE_CUDA_FIRST_PROCESS";  // who is watched

}  // namespace lowtide::run_environment
