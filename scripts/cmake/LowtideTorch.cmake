# Torch as the Python that has it sees it: imported targets made by hand, since TorchConfig.cmake
# searches for a CUDA toolkit. Defines the interface target `lowtide_libtorch`.
if(NOT LOWTIDE_PYTHON)
  if(EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    set(LOWTIDE_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "" FORCE)
  else()
    find_program(LOWTIDE_PYTHON python3 REQUIRED)
  endif()
endif()
execute_process(
  COMMAND ${LOWTIDE_PYTHON} -c "import importlib.util as u, importlib.metadata as m, os; print(os.path.dirname(u.find_spec('torch').origin)); print(m.version('torch'))"
  OUTPUT_VARIABLE _out RESULT_VARIABLE _rc ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT _rc EQUAL 0)
  message(FATAL_ERROR "${LOWTIDE_PYTHON} has no torch. Fix: run scripts/setup, or pass -DLOWTIDE_PYTHON=/path/to/python with torch 2.15 or 2.11.")
endif()
string(REPLACE "\n" ";" _out "${_out}")
list(GET _out 0 LOWTIDE_TORCH_DIR)
list(GET _out 1 LOWTIDE_TORCH_VERSION)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" LOWTIDE_TORCH_MINOR "${LOWTIDE_TORCH_VERSION}")
if(NOT LOWTIDE_TORCH_MINOR MATCHES "^2\\.(15|11)$")
  message(FATAL_ERROR "torch ${LOWTIDE_TORCH_VERSION} is not supported; Lowtide is built against 2.15 or 2.11. Fix: scripts/setup --torch 2.15")
endif()
message(STATUS "torch ${LOWTIDE_TORCH_VERSION} from ${LOWTIDE_TORCH_DIR}")

add_library(lowtide_libtorch INTERFACE)
target_include_directories(lowtide_libtorch SYSTEM INTERFACE
  ${LOWTIDE_TORCH_DIR}/include ${LOWTIDE_TORCH_DIR}/include/torch/csrc/api/include)
# Layouts differ without NDEBUG (at::RecordFunction has an extra member): forced in every preset.
target_compile_definitions(lowtide_libtorch INTERFACE NDEBUG LOWTIDE_TORCH_VERSION="${LOWTIDE_TORCH_VERSION}")
target_compile_options(lowtide_libtorch INTERFACE -UNDEBUG -DNDEBUG)
target_link_directories(lowtide_libtorch INTERFACE ${LOWTIDE_TORCH_DIR}/lib)
target_link_libraries(lowtide_libtorch INTERFACE torch torch_cpu c10)
target_link_options(lowtide_libtorch INTERFACE -Wl,-rpath,${LOWTIDE_TORCH_DIR}/lib)
