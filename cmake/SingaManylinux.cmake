# SINGA_MANYLINUX=2_28 links the libraries such that they run with glibc 2.28 and with the libstdc++
# of GCC 8, though headers and compiler are newer ones. scripts/wheel.sh sets it.
#
# They link to libstdc++ as other builds do, so that a process has one, which all its libraries and
# programs share. Only functions that came later are linked statically.

set(SINGA_MANYLINUX "" CACHE STRING "Oldest Linux that the libraries are for: this one, or 2_28")
set_property(CACHE SINGA_MANYLINUX PROPERTY STRINGS "" 2_28)
set(
  SINGA_GOMP
  ""
  CACHE FILEPATH
  "The libgomp.so.1 that wheels contain, instead of the compiler's (scripts/older_gomp.sh)"
)

# singa_for_older_linux(<target>): links a shared library in this way.
function(singa_for_older_linux target)
  if(SINGA_MANYLINUX)
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/older_glibc.cc")
    target_link_options(
      ${target}
      PRIVATE "-L${PROJECT_BINARY_DIR}/manylinux" "LINKER:--exclude-libs,libstdc++.a"
    )
  endif()
endfunction()

if(NOT SINGA_MANYLINUX)
  return()
endif()
if(NOT SINGA_MANYLINUX STREQUAL "2_28")
  message(FATAL_ERROR "SINGA_MANYLINUX=${SINGA_MANYLINUX}: only 2_28 is supported")
endif()
execute_process(
  COMMAND
    "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/older_libraries.py" "${CMAKE_CXX_COMPILER}"
    "${CMAKE_READELF}" "${PROJECT_BINARY_DIR}/manylinux"
  COMMAND_ERROR_IS_FATAL ANY
)
