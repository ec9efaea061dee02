# Finds Debian's CAF 0.17, which comes with neither a CMake config file nor a .pc file.
# Targets: CAF::core, and CAF::io where it is installed. Variables: CAF_FOUND, CAF_VERSION.
find_package(Threads REQUIRED)

find_path(CAF_INCLUDE_DIR caf/config.hpp)
find_library(CAF_CORE_LIBRARY caf_core)
find_library(CAF_IO_LIBRARY caf_io)
mark_as_advanced(CAF_INCLUDE_DIR CAF_CORE_LIBRARY CAF_IO_LIBRARY)

set(CAF_VERSION "")
if(CAF_INCLUDE_DIR)
  # 0.17.6 says `#define CAF_VERSION 1706`; 1.x defines its parts elsewhere, and is not supported.
  file(STRINGS "${CAF_INCLUDE_DIR}/caf/config.hpp" line REGEX "^#define CAF_VERSION [0-9]+$")
  if(line MATCHES "([0-9]+)$")
    math(EXPR major "${CMAKE_MATCH_1} / 10000")
    math(EXPR minor "${CMAKE_MATCH_1} / 100 % 100")
    math(EXPR patch "${CMAKE_MATCH_1} % 100")
    set(CAF_VERSION "${major}.${minor}.${patch}")
  endif()
endif()

set(remedy "kvlease builds on CAF 0.17.6, which Debian 12 and Ubuntu package: run tools/setup, or apt-get install libcaf-dev.")
if(CAF_INCLUDE_DIR AND NOT CAF_VERSION MATCHES "^0\\.17\\.")
  set(remedy "The CAF in ${CAF_INCLUDE_DIR} is not of the 0.17 series. ${remedy}")
  set(CAF_VERSION "CAF_VERSION-NOTFOUND")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF
  REQUIRED_VARS CAF_CORE_LIBRARY CAF_INCLUDE_DIR CAF_VERSION
  VERSION_VAR CAF_VERSION
  REASON_FAILURE_MESSAGE "${remedy}")

if(CAF_FOUND AND NOT TARGET CAF::core)
  add_library(CAF::core UNKNOWN IMPORTED)
  set_target_properties(CAF::core PROPERTIES
    IMPORTED_LOCATION "${CAF_CORE_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
  if(CAF_IO_LIBRARY)
    add_library(CAF::io UNKNOWN IMPORTED)
    set_target_properties(CAF::io PROPERTIES
      IMPORTED_LOCATION "${CAF_IO_LIBRARY}"
      INTERFACE_LINK_LIBRARIES CAF::core)
  endif()
endif()
