# A library that Debian packages without a CMake config file: one header, one library, one target NAME::TARGET.
# For find modules; `package` is what the reader has to install.
macro(kvlease_find_plain_library name target header library package)
  find_path(${name}_INCLUDE_DIR ${header})
  find_library(${name}_LIBRARY ${library})
  mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)

  include(FindPackageHandleStandardArgs)
  find_package_handle_standard_args(${name}
    REQUIRED_VARS ${name}_LIBRARY ${name}_INCLUDE_DIR
    REASON_FAILURE_MESSAGE "Run tools/setup, or apt-get install ${package}.")

  if(${name}_FOUND AND NOT TARGET ${name}::${target})
    add_library(${name}::${target} UNKNOWN IMPORTED)
    set_target_properties(${name}::${target} PROPERTIES
      IMPORTED_LOCATION "${${name}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${${name}_INCLUDE_DIR}")
  endif()
endmacro()
