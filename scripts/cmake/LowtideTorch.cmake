# Torch as the Python that has it sees it: targets made by hand, since TorchConfig.cmake searches for
# a CUDA toolkit. Used by Lowtide's own build and, installed, by find_package(Lowtide).
#
# In:  LOWTIDE_PYTHON (empty: .venv beside the tree, then python3)
# Out: LOWTIDE_TORCH_DIR, LOWTIDE_TORCH_VERSION, LOWTIDE_SITE_PACKAGES and
#      lowtide_libtorch       headers, torch_cpu, c10, NDEBUG
#      lowtide_libtorch_cuda  also loads torch's CUDA half at start, where this torch has one
#      lowtide_libc10_cuda    headers, c10_cuda, c10, NDEBUG; needs CUDA's headers besides


if(NOT LOWTIDE_PYTHON)
  if(PROJECT_NAME STREQUAL "Lowtide" AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    set(LOWTIDE_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "" FORCE)
  else()
    find_program(LOWTIDE_PYTHON3 python3 REQUIRED)
    set(LOWTIDE_PYTHON "${LOWTIDE_PYTHON3}" CACHE FILEPATH "" FORCE)
  endif()
endif()

# find_spec does not import torch: 0.1 s instead of several.
execute_process(
  COMMAND ${LOWTIDE_PYTHON} -c "
import importlib.metadata, importlib.util, os
print(os.path.dirname(importlib.util.find_spec('torch').origin))
print(importlib.metadata.version('torch'))"
  OUTPUT_VARIABLE _lowtide_out RESULT_VARIABLE _lowtide_rc ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT _lowtide_rc EQUAL 0)
  message(FATAL_ERROR "${LOWTIDE_PYTHON} has no torch. Fix: run scripts/setup, or pass "
    "-DLOWTIDE_PYTHON=<python with torch 2.15 or 2.11>.")
endif()
string(REPLACE "\n" ";" _lowtide_out "${_lowtide_out}")
list(GET _lowtide_out 0 LOWTIDE_TORCH_DIR)
list(GET _lowtide_out 1 LOWTIDE_TORCH_VERSION)
cmake_path(GET LOWTIDE_TORCH_DIR PARENT_PATH LOWTIDE_SITE_PACKAGES)
if(NOT LOWTIDE_TORCH_VERSION MATCHES "^2\\.(15|11)\\.")
  message(FATAL_ERROR "torch ${LOWTIDE_TORCH_VERSION} (${LOWTIDE_PYTHON}) is not supported: Lowtide "
    "uses 2.15 or 2.11. Fix: scripts/setup, or pass -DLOWTIDE_PYTHON=<python with one of them>.")
endif()
message(STATUS "torch ${LOWTIDE_TORCH_VERSION} from ${LOWTIDE_TORCH_DIR}")

if(NOT TARGET lowtide_libtorch)
  add_library(lowtide_libtorch INTERFACE)
  target_include_directories(lowtide_libtorch SYSTEM INTERFACE
    ${LOWTIDE_TORCH_DIR}/include ${LOWTIDE_TORCH_DIR}/include/torch/csrc/api/include)
  # Layouts differ without NDEBUG (at::RecordFunction has one more member), so a Debug build of
  # torch-including code would corrupt memory. Last on the command line, hence an option.
  target_compile_options(lowtide_libtorch INTERFACE -UNDEBUG -DNDEBUG)
  target_compile_definitions(lowtide_libtorch INTERFACE
    LOWTIDE_TORCH_VERSION="${LOWTIDE_TORCH_VERSION}")
  target_link_libraries(lowtide_libtorch INTERFACE
    ${LOWTIDE_TORCH_DIR}/lib/libtorch_cpu.so ${LOWTIDE_TORCH_DIR}/lib/libc10.so)
  target_link_options(lowtide_libtorch INTERFACE "LINKER:-rpath,${LOWTIDE_TORCH_DIR}/lib")

  add_library(lowtide_libc10_cuda INTERFACE)
  target_include_directories(lowtide_libc10_cuda SYSTEM INTERFACE ${LOWTIDE_TORCH_DIR}/include)
  target_compile_options(lowtide_libc10_cuda INTERFACE -UNDEBUG -DNDEBUG)
  target_link_libraries(lowtide_libc10_cuda INTERFACE
    ${LOWTIDE_TORCH_DIR}/lib/libc10_cuda.so ${LOWTIDE_TORCH_DIR}/lib/libc10.so)
  target_link_options(lowtide_libc10_cuda INTERFACE "LINKER:-rpath,${LOWTIDE_TORCH_DIR}/lib")

  add_library(lowtide_libtorch_cuda INTERFACE)
  if(EXISTS "${LOWTIDE_TORCH_DIR}/lib/libtorch_cuda.so")
    # Nothing refers to it by symbol: it registers itself when loaded.
    target_link_libraries(lowtide_libtorch_cuda INTERFACE
      "-Wl,--push-state,--no-as-needed,${LOWTIDE_TORCH_DIR}/lib/libtorch.so,--pop-state")
  endif()
endif()
