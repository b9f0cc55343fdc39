# Finds a CBLAS as target singa_blas, which also provides the private header "singa_blas.h":
#   SINGA_BLAS(cblas_sgemm)(...)   the function, with the prefix of this library's symbols
#   SINGA_BLAS_OPENBLAS            1 if it is OpenBLAS, which has openblas_set_num_threads and so on
# Prefers pip's scipy-openblas32, then the system's OpenBLAS, then any CBLAS.

add_library(singa_blas INTERFACE)
set(SINGA_BLAS_MAPPING "name")
set(SINGA_BLAS_OPENBLAS 1)
set(SINGA_BLAS_LIBRARY "")
set(SINGA_BLAS_HEADER "<cblas.h>")

singa_package(openblas _root)
if(_root)
  file(GLOB SINGA_BLAS_LIBRARY "${_root}/lib/libscipy_openblas*.so")
endif()

if(SINGA_BLAS_LIBRARY)
  set(SINGA_BLAS_MAPPING "scipy_##name")
  set(SINGA_BLAS_PACKAGED ON)
  # Include the header by its path instead of adding a folder to all compile commands: in pip's
  # isolated builds the path differs each time.
  set(SINGA_BLAS_HEADER "\"${_root}/include/cblas.h\"")
  target_link_libraries(singa_blas INTERFACE "${SINGA_BLAS_LIBRARY}")
else()
  set(SINGA_BLAS_PACKAGED OFF)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(OPENBLAS QUIET IMPORTED_TARGET openblas)
  endif()
  if(TARGET PkgConfig::OPENBLAS)
    set(SINGA_BLAS_LIBRARY "${OPENBLAS_LINK_LIBRARIES}")
    target_link_libraries(singa_blas INTERFACE PkgConfig::OPENBLAS)
  else()
    find_package(BLAS QUIET)
    find_path(SINGA_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread)
    if(NOT BLAS_FOUND OR NOT SINGA_CBLAS_INCLUDE)
      message(
        FATAL_ERROR
        "No CBLAS found. Install one with `pip install scipy-openblas32` into the Python that "
        "CMake uses (${Python_EXECUTABLE}), or libopenblas-dev, or set BLA_VENDOR."
      )
    endif()
    set(SINGA_BLAS_LIBRARY "${BLAS_LIBRARIES}")
    if(NOT BLAS_LIBRARIES MATCHES "openblas")
      set(SINGA_BLAS_OPENBLAS 0)
    endif()
    target_include_directories(singa_blas SYSTEM INTERFACE "${SINGA_CBLAS_INCLUDE}")
    target_link_libraries(singa_blas INTERFACE ${BLAS_LIBRARIES})
  endif()
endif()

configure_file(
  "${PROJECT_SOURCE_DIR}/cmake/singa_blas.h.in"
  "${PROJECT_BINARY_DIR}/generated/blas/singa_blas.h"
  @ONLY
)
target_include_directories(singa_blas SYSTEM INTERFACE "${PROJECT_BINARY_DIR}/generated/blas")
