# Finds the Python interpreter and asks it where the build packages are that pip put beside it:
# SWIG, oneDNN and OpenBLAS all come from the package index, and where pip lays them differs between
# a virtual environment, a user install and the overlay of an isolated build. Only the interpreter
# knows, so it is asked instead of guessed at.

# A .venv beside the sources (made by `make`) is preferred, unless another environment is active.
if(NOT DEFINED Python_EXECUTABLE
   AND NOT DEFINED ENV{VIRTUAL_ENV}
   AND NOT SINGA_WHEEL
   AND EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  set(Python_EXECUTABLE "${PROJECT_SOURCE_DIR}/.venv/bin/python")
endif()
set(Python_FIND_VIRTUALENV FIRST)
find_package(Python 3.11 COMPONENTS Interpreter)
if(NOT Python_Interpreter_FOUND)
  if(SINGA_PYTHON)
    message(FATAL_ERROR "Python 3.11 or newer was not found. Point -DPython_EXECUTABLE at one, or "
                        "build the C++ library alone with -DSINGA_PYTHON=OFF.")
  endif()
  return()
endif()

execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/locate_packages.py"
  OUTPUT_VARIABLE SINGA_PACKAGES
  RESULT_VARIABLE _result
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT _result EQUAL 0)
  message(FATAL_ERROR "${Python_EXECUTABLE} could not list its packages (locate_packages.py)")
endif()

# singa_package(<key> <variable>): the folder that locate_packages.py reports under <key>, or "".
function(singa_package key variable)
  string(JSON value ERROR_VARIABLE error GET "${SINGA_PACKAGES}" "${key}")
  if(error)
    set(value "")
  endif()
  set(${variable}
      "${value}"
      PARENT_SCOPE)
endfunction()
