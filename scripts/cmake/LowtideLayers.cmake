# The layer check: part of every build, so that a lower room that includes a higher one fails it.
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
add_custom_target(lowtide_layers ALL
  COMMAND ${Python3_EXECUTABLE} "${PROJECT_SOURCE_DIR}/scripts/check_layers.py"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" COMMENT "Checking layers" VERBATIM)
