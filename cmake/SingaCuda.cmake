# Finds the CUDA compiler and enables the language. SINGA_CUDA_FOUND says whether the backend is
# built. The backend is a separate library (src/backend/cuda); nothing else is compiled differently.

set(SINGA_CUDA_FOUND OFF)
set(SINGA_CUDA_REASON "") # why there is nvcc and no backend
if(SINGA_CUDA STREQUAL "off")
  return()
endif()
if(SINGA_SANITIZE OR SINGA_COVERAGE)
  message(STATUS "No CUDA backend: sanitizers and coverage see its emulation alone")
  return()
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(SINGA_CUDA STREQUAL "on")
    message(
      FATAL_ERROR
      "SINGA_CUDA=on, but no working CUDA compiler was found. Install the CUDA toolkit 13 "
      "(https://developer.nvidia.com/cuda-downloads) and put nvcc on PATH, or set CUDACXX."
    )
  endif()
  message(STATUS "nvcc not found: building without the CUDA backend")
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES "${SINGA_CUDA_ARCHITECTURES}")
if(SINGA_CUDA_ARCHITECTURES STREQUAL "auto")
  execute_process(
    COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    RESULT_VARIABLE _no_gpu
    OUTPUT_QUIET
    ERROR_QUIET
  )
  if(_no_gpu)
    set(CMAKE_CUDA_ARCHITECTURES 80)
  else()
    set(CMAKE_CUDA_ARCHITECTURES native)
  endif()
elseif(SINGA_CUDA_ARCHITECTURES STREQUAL "all")
  # Ampere and Ada, Hopper, both kinds of Blackwell, and later GPUs.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 120)
endif()
if(SINGA_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${SINGA_CCACHE}")
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13 REQUIRED) # CUDA::cudart_static

# cuDNN, cuBLAS and NCCL are opened at their first use, so compiling needs only their headers.
singa_package(cudnn_include _cudnn)
singa_package(cublas_include _cublas)
singa_package(nccl_include _nccl)
find_path(SINGA_CUDNN_INCLUDE cudnn_graph.h HINTS "${_cudnn}" PATHS ${CUDAToolkit_INCLUDE_DIRS})
find_path(SINGA_CUBLAS_INCLUDE cublasLt.h HINTS "${_cublas}" PATHS ${CUDAToolkit_INCLUDE_DIRS})
find_path(SINGA_NCCL_INCLUDE nccl.h HINTS "${_nccl}" PATHS ${CUDAToolkit_INCLUDE_DIRS})
if(NOT SINGA_CUDNN_INCLUDE OR NOT SINGA_CUBLAS_INCLUDE OR NOT SINGA_NCCL_INCLUDE)
  set(
    _missing
    "nvcc is here, but the headers of cuDNN 9 (cudnn_graph.h), cuBLAS (cublasLt.h) or NCCL (nccl.h) are not. "
    "`scripts/cuda_headers.py` fetches them for the Python that CMake uses (${Python_EXECUTABLE})."
  )
  if(SINGA_CUDA STREQUAL "on")
    message(FATAL_ERROR ${_missing})
  endif()
  message(WARNING ${_missing} " Building without the CUDA backend.")
  string(JOIN "" SINGA_CUDA_REASON ${_missing})
  return()
endif()

set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(SINGA_CUDA_FOUND ON)
