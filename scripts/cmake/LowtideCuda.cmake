# CUDA runtime, CUPTI and NVTX headers for code that dlopens those libraries and links none of them:
# the system toolkit's if it is 13.0 or newer, else those of the wheels that torch brings.
#
# In:  LOWTIDE_CUDA_HOME (empty: CUDA_HOME, CUDA_PATH, /usr/local/cuda), LOWTIDE_SITE_PACKAGES
# Out: lowtide_cuda_headers (interface target; absent where there are no headers),
#      LOWTIDE_CUDA_INCLUDE_DIRS
set(LOWTIDE_CUDA_HOME "" CACHE PATH "CUDA toolkit; default CUDA_HOME, CUDA_PATH, /usr/local/cuda")
if(LOWTIDE_CUDA_HOME)
  set(_lowtide_cuda_roots "${LOWTIDE_CUDA_HOME}/include")
else()
  set(_lowtide_cuda_roots)
  foreach(_lowtide_root IN ITEMS "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda)
    if(_lowtide_root)
      list(APPEND _lowtide_cuda_roots "${_lowtide_root}/include")
    endif()
  endforeach()
endif()
if(LOWTIDE_SITE_PACKAGES)
  list(APPEND _lowtide_cuda_roots "${LOWTIDE_SITE_PACKAGES}/nvidia/cu13/include")
else()
  # A build without torch, whose wheels may be at hand all the same.
  file(GLOB _lowtide_wheels "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/include")
  list(APPEND _lowtide_cuda_roots ${_lowtide_wheels})
endif()

set(LOWTIDE_CUDA_INCLUDE_DIRS)
foreach(_lowtide_root IN LISTS _lowtide_cuda_roots)
  if(NOT EXISTS "${_lowtide_root}/cuda_runtime_api.h" OR NOT EXISTS "${_lowtide_root}/nvtx3/nvToolsExt.h")
    continue()
  endif()
  file(STRINGS "${_lowtide_root}/cuda_runtime_api.h" _lowtide_version
       REGEX "^#define CUDART_VERSION +[0-9]+" LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+$" _lowtide_version "${_lowtide_version}")
  if(_lowtide_version LESS 13000)
    continue()
  endif()
  # Some toolkits keep CUPTI in a folder of its own.
  set(_lowtide_cupti "${_lowtide_root}/../extras/CUPTI/include")
  if(EXISTS "${_lowtide_root}/cupti.h")
    set(LOWTIDE_CUDA_INCLUDE_DIRS "${_lowtide_root}")
  elseif(EXISTS "${_lowtide_cupti}/cupti.h")
    set(LOWTIDE_CUDA_INCLUDE_DIRS "${_lowtide_root}" "${_lowtide_cupti}")
  endif()
  if(LOWTIDE_CUDA_INCLUDE_DIRS)
    message(STATUS "CUDA headers ${_lowtide_version} from ${_lowtide_root}")
    break()
  endif()
endforeach()

if(LOWTIDE_CUDA_INCLUDE_DIRS)
  add_library(lowtide_cuda_headers INTERFACE)
  target_include_directories(lowtide_cuda_headers SYSTEM INTERFACE ${LOWTIDE_CUDA_INCLUDE_DIRS})
else()
  message(STATUS "CUDA headers: none (no toolkit >= 13.0, no torch wheels)")
endif()
