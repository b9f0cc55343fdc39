# Finds oneDNN (3.2 or newer, OpenMP build) as DNNL::dnnl: in dnnl_DIR if it is set, else in pip's
# package for this interpreter, else wherever find_package finds it.

singa_package(dnnl_DIR _packaged)
if(_packaged AND NOT EXISTS "${dnnl_DIR}") # also if a cached path no longer exists
  set(dnnl_DIR "${_packaged}" CACHE PATH "Folder of dnnl-config.cmake" FORCE)
endif()
find_package(dnnl 3.2 CONFIG QUIET)

set(SINGA_ONEDNN_PACKAGED OFF) # ON: singa's packages include the library
if(TARGET DNNL::dnnl)
  if(dnnl_DIR STREQUAL _packaged)
    set(SINGA_ONEDNN_PACKAGED ON)
  endif()
  if(DNNL_CPU_THREADING_RUNTIME AND NOT DNNL_CPU_THREADING_RUNTIME STREQUAL "OMP")
    message(
      FATAL_ERROR
      "oneDNN at ${dnnl_DIR} runs on ${DNNL_CPU_THREADING_RUNTIME}; singa needs "
      "the OpenMP build (pip install onednn-devel-cpu-gomp)"
    )
  endif()
elseif(SINGA_ONEDNN STREQUAL "on")
  message(
    FATAL_ERROR
    "SINGA_ONEDNN=on, but oneDNN >= 3.2 was not found. Install it with "
    "`pip install onednn-devel-cpu-gomp`, or set dnnl_DIR."
  )
else()
  message(STATUS "oneDNN not found: building without the onednn backend")
endif()
