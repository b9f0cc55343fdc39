# Finds oneDNN (3.2 or newer, OpenMP build) as DNNL::dnnl: the package that pip installed for this
# interpreter, else whatever find_package knows (dnnl_DIR, CMAKE_PREFIX_PATH, the system).

set(SINGA_ONEDNN_PACKAGED OFF)
if(NOT DEFINED dnnl_DIR AND COMMAND singa_package)
  singa_package(dnnl_DIR _dnnl_dir)
  if(_dnnl_dir)
    find_package(dnnl 3.2 CONFIG QUIET PATHS "${_dnnl_dir}" NO_DEFAULT_PATH)
    set(SINGA_ONEDNN_PACKAGED ${dnnl_FOUND})
  endif()
endif()
if(NOT TARGET DNNL::dnnl)
  find_package(dnnl 3.2 CONFIG QUIET)
endif()

if(TARGET DNNL::dnnl)
  if(DNNL_CPU_THREADING_RUNTIME AND NOT DNNL_CPU_THREADING_RUNTIME STREQUAL "OMP")
    message(FATAL_ERROR "oneDNN at ${dnnl_DIR} runs on ${DNNL_CPU_THREADING_RUNTIME}; singa needs "
                        "the OpenMP build (pip install onednn-devel-cpu-gomp)")
  endif()
elseif(SINGA_ONEDNN STREQUAL "on")
  message(FATAL_ERROR "SINGA_ONEDNN=on, but oneDNN >= 3.2 was not found. Install it with "
                      "`pip install onednn-devel-cpu-gomp`, or set dnnl_DIR.")
else()
  message(STATUS "oneDNN not found: building without the onednn backend")
endif()
