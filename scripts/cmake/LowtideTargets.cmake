# How Lowtide's targets are made, so that a room's CMakeLists.txt only lists what is its own.
#
#   lowtide_library(lowtide_<room> SOURCES ... [PUBLIC libs] [PRIVATE libs] [TORCH])
#   lowtide_program(name SOURCES ... [LIBS ...] [TORCH])    an executable in bin/; TORCH loads torch's
#                                                            CUDA half too, where there is one
#   lowtide_test(name SOURCES ... [LIBS ...] [TORCH] [PLAIN] [LABELS ...])    GoogleTest, one ctest per
#                                            case; PLAIN: cannot run under sanitizers, not made there
include(GNUInstallDirs)
find_package(Threads REQUIRED)

# One place for what the linker finds, so that a library runs from the build tree as from anywhere.
set(LOWTIDE_LIBRARY_DIR "${PROJECT_BINARY_DIR}/lib")

add_library(lowtide_warnings INTERFACE)
target_compile_options(lowtide_warnings INTERFACE
  -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<BOOL:${LOWTIDE_WERROR}>:-Werror>)
add_library(lowtide_sanitizers INTERFACE)
if(LOWTIDE_SANITIZE)
  target_compile_options(lowtide_sanitizers INTERFACE
    -fsanitize=${LOWTIDE_SANITIZE} -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1)
  target_link_options(lowtide_sanitizers INTERFACE -fsanitize=${LOWTIDE_SANITIZE})
endif()

# Most of a build's time goes into others' headers, again in each file that uses them.
# LOWTIDE_QUICK_BUILD joins files by eights. In test code torch's headers are moreover parsed once for
# all and nothing is optimized; undefined behaviour is looked for in the product's code only, addresses
# in all of it.
add_library(lowtide_quick_tests INTERFACE)
target_compile_options(lowtide_quick_tests INTERFACE -O0 -fPIC)
# Precompiled headers serve only those who define the same.
target_compile_definitions(lowtide_quick_tests INTERFACE GTEST_HAS_PTHREAD=1)
if(LOWTIDE_SANITIZE MATCHES "undefined")
  target_compile_options(lowtide_quick_tests INTERFACE -fno-sanitize=undefined)
endif()

# For targets that link lowtide_libtorch; after their other libraries.
function(lowtide_torch_test_code target)
  if(LOWTIDE_SANITIZE)
    # The checks' own code makes the compiler doubt torch's headers.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
  if(NOT LOWTIDE_QUICK_BUILD)
    return()
  endif()
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:lowtide_quick_tests>)
  if(NOT TARGET lowtide_torch_headers)
    set(source ${PROJECT_BINARY_DIR}/torch_headers.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "// Precompiled headers need a target with a source.\n")
    add_library(lowtide_torch_headers OBJECT ${source})
    lowtide_common(lowtide_torch_headers)
    target_link_libraries(lowtide_torch_headers PRIVATE lowtide_libtorch lowtide_quick_tests)
    target_precompile_headers(lowtide_torch_headers PRIVATE <gtest/gtest.h> <torch/torch.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM lowtide_torch_headers)
endfunction()

function(lowtide_common target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE
    $<BUILD_INTERFACE:lowtide_warnings> $<BUILD_INTERFACE:lowtide_sanitizers>)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET default
    UNITY_BUILD ${LOWTIDE_QUICK_BUILD} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# All libraries are shared: the runtime and a user's own code then meet in one ledger and one
# allocator, however the user links them.
function(lowtide_library target)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${target} SHARED ${ARG_SOURCES})
  string(REGEX REPLACE "^lowtide_" "" short ${target})
  add_library(Lowtide::${short} ALIAS ${target})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${short} VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LIBRARY_OUTPUT_DIRECTORY ${LOWTIDE_LIBRARY_DIR} INSTALL_RPATH "\$ORIGIN")
  lowtide_common(${target})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src/lowtide>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/lowtide>)
  target_link_libraries(${target} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(ARG_TORCH)
    # Installed users get torch from LowtideConfig.cmake, where their Python has it.
    target_link_libraries(${target} PUBLIC $<BUILD_INTERFACE:lowtide_libtorch>)
    if(NOT PROJECT_IS_TOP_LEVEL)
      target_link_libraries(${target} INTERFACE $<BUILD_INTERFACE:lowtide_libtorch_cuda>)
    endif()
  endif()
  set_property(GLOBAL APPEND PROPERTY LOWTIDE_LIBRARIES ${target})
endfunction()

function(lowtide_executable name torch sources libs)
  add_executable(${name} ${sources})
  lowtide_common(${name})
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${libs} Threads::Threads)
  if(torch)
    target_link_libraries(${name} PRIVATE lowtide_libtorch)
    lowtide_torch_test_code(${name})
    if(LOWTIDE_SANITIZE)
      target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/scripts/cmake/sanitizer_options.cc)
    endif()
  endif()
endfunction()

function(lowtide_program name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LIBS" ${ARGN})
  lowtide_executable(${name} "${ARG_TORCH}" "${ARG_SOURCES}" "${ARG_LIBS}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(ARG_TORCH)
    target_link_libraries(${name} PRIVATE lowtide_libtorch_cuda)
  endif()
endfunction()

function(lowtide_test name)
  cmake_parse_arguments(ARG "TORCH;PLAIN" "" "SOURCES;LIBS;LABELS" ${ARGN})
  if(ARG_PLAIN AND LOWTIDE_SANITIZE)
    return()
  endif()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  lowtide_executable(${name} "${ARG_TORCH}" "${ARG_SOURCES}"
    "${ARG_LIBS};GTest::gmock;GTest::gtest_main")
  if(LOWTIDE_PLAIN_TESTS AND NOT ARG_PLAIN)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  # One intra-op thread: tests run side by side, and threads that spin for each other would take most of
  # the time.
  # gtest_discover_tests cannot pass on a list of labels: one is made of them. ctest's -L and -LE look
  # for a part of it.
  string(JOIN "-" label ${ARG_LABELS})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS "${label}" TIMEOUT 600 ENVIRONMENT "OMP_NUM_THREADS=1")
endfunction()
