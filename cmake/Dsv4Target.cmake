# SPDX-License-Identifier: Apache-2.0
# What every target of the project shares: language level, warnings, visibility, sanitizers; and the
# two functions with which each folder declares itself.

# The ending of the sources that call the system, one for each: X_posix.cc, X_windows.cc. Only those name its headers.
if(WIN32)
  set(DSV4_SYSTEM windows)
else()
  set(DSV4_SYSTEM posix)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(DSV4_CCACHE ccache)
if(DSV4_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${DSV4_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DSV4_CCACHE})
endif()

add_library(dsv4_flags INTERFACE)
set(warnings -Wall -Wextra)
set(cuda_warnings)
if(DSV4_WERROR)
  list(APPEND warnings -Werror)
  list(APPEND cuda_warnings -Werror=all-warnings)
endif()
# They are paths of the machine that builds: packages go without.
option(DSV4_CUDA_LINEINFO "Name source files and lines in CUDA images, for profilers" OFF)
set(cuda_lineinfo)
if(DSV4_CUDA_LINEINFO)
  set(cuda_lineinfo -lineinfo)
endif()
# No contraction: a fused multiply-add happens where the code says so, so that results are the same on
# every compiler and instruction set of one kernel variant.
set(DSV4_CUDA_OPTIONS ${cuda_warnings} -fmad=false --expt-relaxed-constexpr ${cuda_lineinfo})
target_compile_options(dsv4_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:${warnings};-ffp-contract=off>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fvisibility=hidden;${DSV4_CUDA_OPTIONS}>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in its own std::string concatenation (GCC bug 105651), and endless ones
  # where that comes from a precompiled header.
  target_compile_options(dsv4_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overflow;-Wno-array-bounds>)
endif()
# Locks that lib/base/mutex.h annotates; GCC has no such check.
target_compile_options(dsv4_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>)
target_include_directories(dsv4_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include
                           ${PROJECT_BINARY_DIR})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # What Highway asks of its NEON: GCC does not inline its functions into code for less. Of all targets:
  # precompiled headers are for equal options.
  target_compile_options(dsv4_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=armv8-a+crypto>)
endif()
if(DSV4_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${DSV4_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${DSV4_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 takes instrumented library code (std::regex inside Catch2) for uninitialised.
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-Wno-maybe-uninitialized>)
  else()
    # The executable holds the runtime. Clients in C need its part for C++, which libdsv4 calls.
    add_link_options(-fsanitize-link-c++-runtime)
    string(APPEND CMAKE_C_STANDARD_LIBRARIES " -lstdc++")
    # GCC defines these; tests ask for them.
    foreach(sanitizer address thread)
      if(DSV4_SANITIZE MATCHES ${sanitizer})
        string(TOUPPER ${sanitizer} name)
        add_compile_definitions(__SANITIZE_${name}__=1)
      endif()
    endforeach()
  endif()
  if(DSV4_SANITIZE MATCHES "address")
    # They tell of accesses that AddressSanitizer stops itself, and make loops four times slower.
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize=null,object-size,pointer-overflow>")
  endif()
endif()

# dsv4_instrumented(TARGET): instruments a library for libFuzzer where fuzz targets are built, with all checks of
# UndefinedBehaviorSanitizer. Kernels, which have no precompiled headers then, are left out: they read no input of
# their own.
function(dsv4_instrumented target)
  if(DSV4_FUZZ)
    set(is_kernel $<BOOL:$<TARGET_PROPERTY:DISABLE_PRECOMPILE_HEADERS>>)
    target_compile_options(${target} PRIVATE
      "$<$<NOT:${is_kernel}>:-fsanitize=fuzzer-no-link;-fsanitize=null,object-size,pointer-overflow>")
  endif()
endfunction()

# dsv4_precompiled(TARGET [HEADER...]): a library whose sources begin with the headers that most sources include, and
# that take two thirds of the time to compile one; and with more headers of its own.
# CMAKE_DISABLE_PRECOMPILE_HEADERS turns that off, as the test packaging_subproject_build does: each source still
# includes what it uses.
function(dsv4_precompiled target)
  set(headers
    <algorithm> <array> <chrono> <functional> <map> <memory> <mutex> <optional> <string> <string_view> <thread>
    <utility> <vector> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/types/span.h>)
  if(ARGN)
    target_precompile_headers(${target} PRIVATE ${headers} ${ARGN})
    dsv4_instrumented(${target})
    return()
  endif()
  if(NOT TARGET dsv4_common_headers)
    file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/common_headers.cc CONTENT "")
    add_library(dsv4_common_headers OBJECT ${PROJECT_BINARY_DIR}/common_headers.cc)
    target_link_libraries(dsv4_common_headers PRIVATE dsv4_flags absl::statusor absl::strings absl::span)
    dsv4_instrumented(dsv4_common_headers)
    target_precompile_headers(dsv4_common_headers PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM dsv4_common_headers)
  dsv4_instrumented(${target})
endfunction()

# dsv4_library(NAME SOURCES a.cc ... DEPS target ...): the static library `dsv4_NAME` of one folder.
function(dsv4_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(dsv4_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(dsv4_${name} PUBLIC dsv4_flags ${ARG_DEPS})
    dsv4_precompiled(dsv4_${name})
  else()
    add_library(dsv4_${name} INTERFACE)
    target_link_libraries(dsv4_${name} INTERFACE dsv4_flags ${ARG_DEPS})
  endif()
endfunction()

# dsv4_optimised_when_sanitized(TARGET): its loops are most of what sanitized tests run; the rest is compiled for longer
# than it runs. Precompiled headers are for equal options.
function(dsv4_optimised_when_sanitized target)
  if(DSV4_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O2>)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# dsv4_test_options(TARGET): compiling its sources takes longer than running them. Executables get the option that
# libraries have: precompiled headers are for equal ones.
function(dsv4_test_options target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-fPIC> $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# dsv4_test_sources(TARGET): a target whose sources are tests.
function(dsv4_test_sources target)
  target_link_libraries(${target} PRIVATE dsv4_flags dsv4_test_support)
  dsv4_test_options(${target})
  target_precompile_headers(${target} REUSE_FROM dsv4_test_support)
endfunction()

# dsv4_test(NAME SOURCES a_test.cc ... DEPS target ... [LABELS label ...] [TIMEOUT s] [ARGS arg ...]):
# one Catch2 executable `NAME_test` and its ctest entry. Tests labelled `threads` are what ThreadSanitizer is for:
# the target `thread_tests` builds them alone.
if(DSV4_BUILD_TESTS)
  add_custom_target(thread_tests)
endif()
function(dsv4_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS;ARGS" ${ARGN})
  add_executable(${name}_test ${ARG_SOURCES})
  target_link_libraries(${name}_test PRIVATE ${ARG_DEPS})
  dsv4_test_sources(${name}_test)
  add_test(NAME ${name} COMMAND ${name}_test ${ARG_ARGS})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if(threads IN_LIST ARG_LABELS)
    add_dependencies(thread_tests ${name}_test)
  endif()
endfunction()

# dsv4_cuda_test(NAME ...): a dsv4_test of the CUDA backend's kernels. It needs a device, and is skipped
# with the reason where there is none.
function(dsv4_cuda_test name)
  dsv4_gpus_test(1 ${name} ${ARGN})
endfunction()
# The same of two.
function(dsv4_two_gpus_test name)
  dsv4_gpus_test(2 ${name} ${ARGN})
endfunction()
function(dsv4_gpus_test count name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;ARGS" ${ARGN})
  dsv4_test(${name} SOURCES ${PROJECT_SOURCE_DIR}/tests/kernels/cuda_required.cc ${ARG_SOURCES}
            DEPS dsv4_sm12x dsv4_reference ${ARG_DEPS} LABELS gpu TIMEOUT 600 ARGS ${ARG_ARGS})
  target_compile_definitions(${name}_test PRIVATE DSV4_NEEDED_GPUS=${count})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()
