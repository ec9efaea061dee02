# Whether copies go through CUDA. Sources that depend on it say so by their names:
#   *_cuda.cpp    host code on the runtime API: needs the toolkit's headers and libcudart_static
#   *.cu          kernels: need nvcc too
#   *_absent.cpp  in their place, in a build without CUDA
# All other sources are compiled alike in both.
set(KVLEASE_CUDA_FOUND FALSE)
if(NOT KVLEASE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "KVLEASE_CUDA is \"${KVLEASE_CUDA}\": it must be AUTO, ON or OFF")
endif()

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

if(KVLEASE_CUDA_FOUND)
  # Machine code for Ampere, Ada and Hopper; later devices translate the 90 PTX when they load it.
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # CMake 3.25 does not know nvcc's option for C++20.
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-lineinfo>")
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

# Leaves in the list `variable` what this build compiles.
function(kvlease_select_cuda_sources variable)
  set(sources ${${variable}})
  if(KVLEASE_CUDA_FOUND)
    list(FILTER sources EXCLUDE REGEX "_absent\\.cpp$")
    # These alone see the toolkit's headers: the rest is compiled by the same command in both kinds of build.
    set(host_sources ${sources})
    list(FILTER host_sources INCLUDE REGEX "_cuda\\.cpp$")
    foreach(directory IN LISTS CUDAToolkit_INCLUDE_DIRS)
      set_property(SOURCE ${host_sources} APPEND PROPERTY COMPILE_OPTIONS -isystem "${directory}")
    endforeach()
  else()
    list(FILTER sources EXCLUDE REGEX "(_cuda\\.cpp|\\.cu)$")
  endif()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

function(kvlease_link_cuda target)
  if(KVLEASE_CUDA_FOUND)
    target_link_libraries(${target} PUBLIC $<LINK_ONLY:CUDA::cudart_static>)
  endif()
endfunction()
