# How everything is compiled: build type, ccache, warnings, sanitizers.
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CCACHE ccache)
  mark_as_advanced(CCACHE)
  if(CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE}")
  endif()
endif()

# Warnings are for our own targets only: linked PRIVATE, so that a host that embeds kvlease keeps its own.
add_library(kvlease_warnings INTERFACE)
set(warnings -Wall -Wextra -Wpedantic -Wno-missing-field-initializers -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(KVLEASE_WERROR)
  list(APPEND warnings -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports std::string concatenation as an overlap that cannot be (GCC bug 105651).
  list(APPEND warnings -Wno-restrict -Wno-maybe-uninitialized)
  if(KVLEASE_SANITIZE)
    # Instrumentation hides initialisations from the optimiser: false reports only.
    list(APPEND warnings -Wno-maybe-uninitialized)
  endif()
endif()
target_compile_options(kvlease_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
                                                  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")

if(KVLEASE_SANITIZE)
  list(JOIN KVLEASE_SANITIZE "," names)
  # Not `null`: CAF 0.17 binds a reference to null in init_fun_factory.hpp, and never reads it.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${names};-fno-sanitize=null;-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  add_link_options("-fsanitize=${names}")
endif()
