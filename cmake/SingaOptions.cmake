# Options for users, and defaults for all targets.

option(SINGA_PYTHON "Build the Python extension and lay out the Python package" ON)
option(SINGA_TESTS "Build the C++ tests (needs GoogleTest)" ${PROJECT_IS_TOP_LEVEL})
option(SINGA_EMULATED_GPU "Build the emulated GPU and the tests that run on it" ON)
option(SINGA_WERROR "Treat compiler warnings as errors" OFF)
option(SINGA_COVERAGE "Instrument for coverage" OFF)
option(SINGA_PRECOMPILE "Precompile common headers; OFF finds a missing #include" ON)
set(SINGA_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined or thread")

# Optional backends. auto: built if their dependencies are found; on: required; off: not built.
set(SINGA_ONEDNN "auto" CACHE STRING "oneDNN backend: auto, on or off")
set_property(CACHE SINGA_ONEDNN PROPERTY STRINGS auto on off)
set(SINGA_CUDA "auto" CACHE STRING "CUDA backend, as a library of its own: auto, on or off")
set_property(CACHE SINGA_CUDA PROPERTY STRINGS auto on off)
set(
  SINGA_CUDA_ARCHITECTURES
  "auto"
  CACHE STRING
  "GPUs to compile for: auto (this machine's; without one Ampere, from which drivers compile for later ones), all, or in CMake's words"
)

# scikit-build-core sets SKBUILD while it builds the wheel, which has no tests. The presets reset it,
# because scripts/install.sh builds the wheel in their folder.
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
    if(SINGA_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # https://ccache.dev/manual/latest.html#_precompiled_headers
      # A precompiled header knows the headers it includes by the sum of their text, comments
      # included. ccache must not take one for another that differs in comments alone: "#pragma once"
      # would fail. The entries of caches written without this are not found again, because the
      # compiler is hashed by content.
      list(
        PREPEND CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}"
        -E
        env
        CCACHE_SLOPPINESS=pch_defines,time_macros
        CCACHE_COMMENTS=1
        CCACHE_COMPILERCHECK=content
      )
      add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
    endif()
  endif()
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

# The folders must be the same in a system prefix and in the wheel, so not "lib64" or a multi-arch
# folder.
set(CMAKE_INSTALL_LIBDIR "lib" CACHE STRING "Where libraries go, below the prefix")
include(GNUInstallDirs)
