# Compile options of all C++ sources of singa. No -march: kernels for newer processors are selected
# at run time, so one binary runs everywhere.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

find_package(Threads REQUIRED)
# A process must have one OpenMP runtime. It is GCC's, with SONAME libgomp.so.1, which oneDNN needs,
# too. scripts/check_wheel.py verifies this for the finished package.
find_package(OpenMP REQUIRED COMPONENTS CXX)

# Flags for our own code only, not for users of the library or generated code.
add_library(singa_flags INTERFACE)
# No code reads errno or the floating-point exception flags. Without them, square roots, comparisons
# and divisions vectorise. Values are still those of IEEE 754.
target_compile_options(
  singa_flags
  INTERFACE -Wall -Wextra -fno-math-errno -fno-trapping-math $<$<BOOL:${SINGA_WERROR}>:-Werror>
)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 wrongly reports overlaps in std::string (GCC bug 105651), and with precompiled headers
  # copies of strings that are longer than memory.
  target_compile_options(singa_flags INTERFACE -Wno-restrict)
  if(SINGA_PRECOMPILE)
    target_compile_options(singa_flags INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endif()
target_link_libraries(singa_flags INTERFACE OpenMP::OpenMP_CXX Threads::Threads)

if(SINGA_SANITIZE)
  add_compile_options(
    -fsanitize=${SINGA_SANITIZE}
    -fno-omit-frame-pointer
    -fno-sanitize-recover=all
  )
  add_link_options(-fsanitize=${SINGA_SANITIZE})
endif()
if(SINGA_SANITIZE MATCHES "undefined")
  # The address sanitizer finds what these would, and they take a tenth of the compile time.
  add_compile_options(-fno-sanitize=null,object-size)
endif()
if(SINGA_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()
