# Whether copies go through CUDA. Two kinds of source need it:
#   cuda/*_cuda.cpp  host code on the runtime API: needs the toolkit's headers and libcudart_static
#   cuda/*.cu        kernels: need nvcc too
# Without it the host stand-in of the same interface is used.
set(KVLEASE_CUDA_FOUND FALSE)
if(NOT KVLEASE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KVLEASE_CUDA is \"${KVLEASE_CUDA}\": it must be AUTO, ON or OFF")
endif()

file(GLOB kernel_sources CONFIGURE_DEPENDS cuda/*.cu)
set(status "off (KVLEASE_CUDA=OFF)")
if(NOT KVLEASE_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if(TARGET CUDA::cudart_static)
    set(KVLEASE_CUDA_FOUND TRUE)
    set(status "on, toolkit ${CUDAToolkit_VERSION}")
  else()
    set(status "off, no toolkit found (set CUDAToolkit_ROOT to where it is)")
  endif()
endif()

if(KVLEASE_CUDA_FOUND AND kernel_sources)
  # Machine code for Ampere, Ada and Hopper; later devices translate the 90 PTX when they load it.
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # CMake 3.25 does not know nvcc's option for C++20.
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>")
    # Assertions stay, as in the release preset's C++ flags.
    string(REPLACE "-DNDEBUG" "" CMAKE_CUDA_FLAGS_RELWITHDEBINFO "${CMAKE_CUDA_FLAGS_RELWITHDEBINFO}")
    string(APPEND status ", kernels for ${CMAKE_CUDA_ARCHITECTURES}")
  else()
    set(KVLEASE_CUDA_FOUND FALSE)
    set(status "off, a toolkit but no working nvcc (set CMAKE_CUDA_COMPILER)")
  endif()
endif()

if(KVLEASE_CUDA STREQUAL "ON" AND NOT KVLEASE_CUDA_FOUND)
  message(FATAL_ERROR "KVLEASE_CUDA=ON, but CUDA is ${status}")
endif()
message(STATUS "CUDA: ${status}")

# Takes the CUDA sources out of the list `variable`, or puts the kernels in.
function(kvlease_select_cuda_sources variable)
  set(sources ${${variable}})
  if(KVLEASE_CUDA_FOUND)
    list(APPEND sources ${kernel_sources})
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/[^/]*_cuda\\.cpp$")
  endif()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

function(kvlease_link_cuda target)
  if(KVLEASE_CUDA_FOUND)
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
  endif()
endfunction()
