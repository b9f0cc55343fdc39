# What a user may choose, and defaults that hold for every target.

option(SINGA_PYTHON "Build the Python extension and lay out the Python package" ON)
option(SINGA_TESTS "Build the C++ tests (needs GoogleTest)" ${PROJECT_IS_TOP_LEVEL})
option(SINGA_WERROR "Treat compiler warnings as errors" OFF)
option(SINGA_COVERAGE "Instrument for coverage" OFF)
set(SINGA_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined or thread")

# Optional backends: auto builds one when what it needs is found, on insists, off leaves it out.
set(SINGA_ONEDNN "auto" CACHE STRING "oneDNN backend: auto, on or off")
set_property(CACHE SINGA_ONEDNN PROPERTY STRINGS auto on off)
set(SINGA_CUDA "auto" CACHE STRING "CUDA backend, as a library of its own: auto, on or off")
set_property(CACHE SINGA_CUDA PROPERTY STRINGS auto on off)
set(
  SINGA_CUDA_ARCHITECTURES
  "80-real;90-real;100-real;120"
  CACHE STRING
  "GPUs to compile for, in CMake's words: Ampere and Ada, Hopper, both kinds of Blackwell, and what comes after"
)

# scikit-build-core sets SKBUILD while it builds the wheel; tests have no place there.
if(SKBUILD)
  set(SINGA_WHEEL ON)
  set(SINGA_TESTS OFF)
else()
  set(SINGA_WHEEL OFF)
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(SINGA_CCACHE ccache)
  if(SINGA_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${SINGA_CCACHE}")
  endif()
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

# The same folders in a system prefix and inside the wheel; "lib64" or a multi-arch folder would
# make the two differ.
set(CMAKE_INSTALL_LIBDIR "lib" CACHE STRING "Where libraries go, below the prefix")
include(GNUInstallDirs)
