# SPDX-License-Identifier: Apache-2.0
# Fuzzing builds: every target is instrumented for libFuzzer, with AddressSanitizer and
# UndefinedBehaviorSanitizer. Only clang can.
option(DSV4_FUZZ "Build the fuzz targets, and everything for them (clang)" OFF)
if(DSV4_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "DSV4_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++-14 (see tools/fuzz.sh)")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
