# CUDA runtime, CUPTI and NVTX headers for code that dlopens those libraries and links none of them:
# the system toolkit's if it is 13.0 or newer, else those of the wheels that torch brings.
#
# Out: lowtide_cuda_headers (interface target; absent where there are no headers),
#      LOWTIDE_CUDA_INCLUDE_DIRS
set(_lowtide_cuda_roots)
foreach(_lowtide_root IN ITEMS "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda)
  if(_lowtide_root)
    list(APPEND _lowtide_cuda_roots "${_lowtide_root}/include")
  endif()
endforeach()
if(LOWTIDE_SITE_PACKAGES)
  list(APPEND _lowtide_cuda_roots "${LOWTIDE_SITE_PACKAGES}/nvidia/cu13/include")
endif()

set(LOWTIDE_CUDA_INCLUDE_DIRS)
foreach(_lowtide_root IN LISTS _lowtide_cuda_roots)
  if(NOT EXISTS "${_lowtide_root}/cuda_runtime_api.h" OR NOT EXISTS "${_lowtide_root}/nvtx3/nvToolsExt.h")
    continue()
  endif()
  file(STRINGS "${_lowtide_root}/cuda_runtime_api.h" _lowtide_version
       REGEX "^#define CUDART_VERSION +[0-9]+" LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+$" _lowtide_version "${_lowtide_version}")
  # An older toolkit keeps CUPTI in a folder of its own.
  find_path(_lowtide_cupti cupti.h NO_CACHE NO_DEFAULT_PATH
            PATHS "${_lowtide_root}" "${_lowtide_root}/../extras/CUPTI/include")
  if(_lowtide_version GREATER_EQUAL 13000 AND _lowtide_cupti)
    set(LOWTIDE_CUDA_INCLUDE_DIRS "${_lowtide_root}" "${_lowtide_cupti}")
    list(REMOVE_DUPLICATES LOWTIDE_CUDA_INCLUDE_DIRS)
    message(STATUS "CUDA headers ${_lowtide_version} from ${_lowtide_root}")
    break()
  endif()
  unset(_lowtide_cupti)
endforeach()

if(LOWTIDE_CUDA_INCLUDE_DIRS)
  add_library(lowtide_cuda_headers INTERFACE)
  target_include_directories(lowtide_cuda_headers SYSTEM INTERFACE ${LOWTIDE_CUDA_INCLUDE_DIRS})
else()
  message(STATUS "CUDA headers: none (no toolkit >= 13.0, no torch wheels)")
endif()
