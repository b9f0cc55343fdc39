# Finds the Python interpreter and asks it for the locations of the build packages that pip
# installed: SWIG, oneDNN and OpenBLAS. They differ between a virtual environment, a user install
# and the overlay of an isolated build, and only the interpreter knows them.

option(
  SINGA_BOOTSTRAP
  "Make .venv with the build packages when no interpreter was chosen"
  ${PROJECT_IS_TOP_LEVEL}
)

set(
  SINGA_TARGET_PACKAGES
  ""
  CACHE PATH
  "When cross-compiling: a folder with pip's packages of oneDNN and OpenBLAS for the other processor"
)

set(SINGA_PACKAGES "{}")

# singa_package(<key> <variable>): the path that locate_packages.py reports under <key>, or "".
function(singa_package key variable)
  string(JSON value ERROR_VARIABLE error GET "${SINGA_PACKAGES}" "${key}")
  if(error)
    set(value "")
  endif()
  set(${variable} "${value}" PARENT_SCOPE)
endfunction()

# The interpreter is the chosen one, that of the active environment, or that of .venv in the source
# folder. `make` and the bootstrap install the packages listed in pyproject.toml into .venv.
set(_venv "${PROJECT_SOURCE_DIR}/.venv")
if(NOT SINGA_WHEEL AND NOT DEFINED Python_EXECUTABLE AND NOT DEFINED ENV{VIRTUAL_ENV})
  if(SINGA_BOOTSTRAP AND SINGA_PYTHON)
    message(STATUS "Looking after the build packages in ${_venv}")
    execute_process(
      COMMAND "${PROJECT_SOURCE_DIR}/scripts/venv.sh" "${_venv}" build run
      COMMAND_ERROR_IS_FATAL ANY
    )
  endif()
  if(EXISTS "${_venv}/bin/python")
    set(Python_EXECUTABLE "${_venv}/bin/python")
  endif()
endif()

set(Python_FIND_VIRTUALENV FIRST)
find_package(Python 3.11 COMPONENTS Interpreter)
if(NOT Python_Interpreter_FOUND)
  if(SINGA_PYTHON)
    message(
      FATAL_ERROR
      "Python 3.11 or newer was not found. Point -DPython_EXECUTABLE at one, or "
      "build the C++ library alone with -DSINGA_PYTHON=OFF."
    )
  endif()
  return()
endif()

execute_process(
  COMMAND
    "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/locate_packages.py" ${SINGA_TARGET_PACKAGES}
  OUTPUT_VARIABLE SINGA_PACKAGES
  OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY
)
