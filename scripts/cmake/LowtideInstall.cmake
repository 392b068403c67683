# `cmake --install`: libraries, public headers, the `lowtide` command, and what find_package(Lowtide)
# reads. Torch is not part of the package: LowtideConfig.cmake finds it again.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY LOWTIDE_LIBRARIES)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Lowtide")

install(TARGETS ${libraries} EXPORT LowtideTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET lowtide)
  set_target_properties(lowtide PROPERTIES INSTALL_RPATH "\$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS lowtide RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(header_dir "${CMAKE_INSTALL_INCLUDEDIR}/lowtide")
foreach(room IN ITEMS src/core hooks planner profiler)
  cmake_path(GET room FILENAME name)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${room}/ DESTINATION ${header_dir}/${name}
          FILES_MATCHING PATTERN "*.h")
endforeach()
if(LOWTIDE_TORCH)
  # The rest of the runtime's headers show torch's inside and are no interface.
  install(FILES ${PROJECT_SOURCE_DIR}/src/runtime/session.h DESTINATION ${header_dir}/runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/src/lowtide/lowtide.h DESTINATION ${header_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/scripts/cmake/LowtideTorch.cmake DESTINATION ${package_dir})
endif()

install(EXPORT LowtideTargets NAMESPACE Lowtide:: DESTINATION ${package_dir})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/scripts/cmake/LowtideConfig.cmake.in
  ${PROJECT_BINARY_DIR}/LowtideConfig.cmake INSTALL_DESTINATION ${package_dir})
# 0.x: a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LowtideConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/LowtideConfig.cmake ${PROJECT_BINARY_DIR}/LowtideConfigVersion.cmake
        DESTINATION ${package_dir})
