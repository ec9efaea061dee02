# One ctest test for each doctest test case, with the case's own name. doctest's own discovery breaks on
# names that hold brackets or semicolons, and takes a wildcard in a name for one.
#
# Included: kvlease_discover_tests(target) runs this file as a script after each link of `target`.
# As a script: -D EXECUTABLE=... -D OUTPUT=... -P discover_tests.cmake
#
# Labels: the folder under tests/ that the case stands in, and its TEST_SUITE, where it has one.
# A case of the suite "serial" runs with no other beside it. One marked doctest::skip() is shown as disabled.
# One that prints "SKIP: why" and fails nothing is shown as skipped.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(KVLEASE_DISCOVER_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")
  function(kvlease_discover_tests target)
    set(output "${CMAKE_CURRENT_BINARY_DIR}/${target}_cases.cmake")
    add_custom_command(TARGET ${target} POST_BUILD
      BYPRODUCTS "${output}"
      COMMAND "${CMAKE_COMMAND}" -D "EXECUTABLE=$<TARGET_FILE:${target}>" -D "OUTPUT=${output}"
              -P "${KVLEASE_DISCOVER_SCRIPT}"
      COMMENT "Listing the test cases of ${target}"
      VERBATIM)
    set(include_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
    file(WRITE "${include_file}" "if(EXISTS [==[${output}]==])\n  include([==[${output}]==])\n"
                                 "else()\n  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include_file}")
  endfunction()
  return()
endif()

# The result of a failed run of discovery must not be taken for that of this build.
file(REMOVE "${OUTPUT}")
execute_process(COMMAND "${EXECUTABLE}" --list-test-cases --reporters=xml --no-skip
                OUTPUT_VARIABLE xml RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${EXECUTABLE} --list-test-cases failed (${result}):\n${xml}")
endif()

# CMake's lists give meaning to these four: stand-ins until each case is written out. The XML has no control
# characters of its own.
foreach(code RANGE 1 4)
  string(ASCII ${code} stand_in_${code})
endforeach()
string(REPLACE "[" "${stand_in_1}" xml "${xml}")
string(REPLACE "]" "${stand_in_2}" xml "${xml}")
string(REPLACE "\\" "${stand_in_3}" xml "${xml}")
string(REPLACE ";" "${stand_in_4}" xml "${xml}")
string(REGEX MATCHALL "<TestCase [^\n]*" cases "${xml}")

# The value of attribute `name` of `element`, as the test's author wrote it ("" when absent).
function(attribute element name result)
  set(value "")
  if(element MATCHES " ${name}=\"([^\"]*)\"")
    set(value "${CMAKE_MATCH_1}")
  endif()
  string(REPLACE "${stand_in_1}" "[" value "${value}")
  string(REPLACE "${stand_in_2}" "]" value "${value}")
  string(REPLACE "${stand_in_3}" "\\" value "${value}")
  string(REPLACE "${stand_in_4}" ";" value "${value}")
  string(REPLACE "&lt;" "<" value "${value}")
  string(REPLACE "&gt;" ">" value "${value}")
  string(REPLACE "&quot;" "\"" value "${value}")
  string(REPLACE "&amp;" "&" value "${value}")
  set(${result} "${value}" PARENT_SCOPE)
endfunction()

# `text` as one argument that CMake reads back unchanged.
function(quote text result)
  set(level "=")
  string(FIND "${text}" "]${level}" found)
  while(NOT found EQUAL -1)
    string(APPEND level "=")
    string(FIND "${text}" "]${level}" found)
  endwhile()
  set(${result} "[${level}[${text}]${level}]" PARENT_SCOPE)
endfunction()

quote("${EXECUTABLE}" executable)
set(script "")
set(count 0)
foreach(case IN LISTS cases)
  attribute("${case}" name name)
  attribute("${case}" testsuite suite)
  attribute("${case}" filename file)
  attribute("${case}" line line)
  attribute("${case}" skipped skipped)
  if(name STREQUAL "")
    message(FATAL_ERROR "${file}:${line}: this test case has no name")
  endif()
  string(SHA1 key "${name}")
  if(DEFINED seen_${key})
    message(FATAL_ERROR "Two test cases are named \"${name}\": ${seen_${key}} and ${file}:${line}")
  endif()
  set(seen_${key} "${file}:${line}")

  # doctest splits its filters at commas and reads * as a wildcard, which nothing but ? can narrow.
  string(REPLACE "\\" "\\\\" filter "${name}")
  string(REPLACE "," "\\," filter "${filter}")
  string(REPLACE "*" "?" filter "${filter}")

  set(labels "")
  if(file MATCHES "/tests/([a-z_]+)/[^/]*$")
    list(APPEND labels "${CMAKE_MATCH_1}")
  endif()
  set(more "")
  if(suite)
    list(APPEND labels "${suite}")
    if(suite STREQUAL "serial")
      string(APPEND more " RUN_SERIAL TRUE")
    endif()
  endif()
  if(skipped STREQUAL "true")
    string(APPEND more " DISABLED TRUE")
  endif()

  quote("${name}" quoted_name)
  quote("--test-case=${filter}" quoted_filter)
  quote("${labels}" quoted_labels)
  string(APPEND script
    "add_test(${quoted_name} ${executable} ${quoted_filter} --case-sensitive=true --no-colors=true)\n"
    "set_tests_properties(${quoted_name} PROPERTIES LABELS ${quoted_labels} TIMEOUT 300"
    # A failure that happens to print SKIP stays a failure: the last line of a run must say success too.
    " SKIP_REGULAR_EXPRESSION [=[SKIP: .*Status: SUCCESS!]=]${more})\n")
  math(EXPR count "${count} + 1")
endforeach()

if(count EQUAL 0)
  message(FATAL_ERROR "${EXECUTABLE} has no test case")
endif()
file(WRITE "${OUTPUT}" "${script}")
message(STATUS "${count} test cases")
