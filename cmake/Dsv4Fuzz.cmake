# SPDX-License-Identifier: Apache-2.0
# Fuzz targets, in a build with sanitizers whose libraries are also instrumented for libFuzzer. Only clang can.
option(DSV4_FUZZ "Build the fuzz targets, and the libraries for them (clang, AddressSanitizer)" OFF)
if(DSV4_FUZZ AND NOT (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND DSV4_SANITIZE MATCHES "address"))
  message(FATAL_ERROR "DSV4_FUZZ needs clang and DSV4_SANITIZE=address,undefined (see tools/build.sh)")
endif()
