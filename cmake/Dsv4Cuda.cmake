# SPDX-License-Identifier: Apache-2.0
# Whether and how the CUDA backend is built. DSV4_CUDA: ON, OFF, or AUTO (ON where an nvcc is found that
# works). An nvcc that CMAKE_CUDA_COMPILER or CUDACXX names must work, with AUTO as well.
# Images: CMAKE_CUDA_ARCHITECTURES in CMake's notation where it is set, else one for the SM12x family
# (SM120 and SM121), and on Arm one for SM121 alone. 120 and 121 mean that family, too: its block-scaled MMA exists in family- and
# architecture-specific images alone.

set(DSV4_CUDA AUTO CACHE STRING "Build the CUDA backend: ON, OFF or AUTO (where nvcc works)")
set_property(CACHE DSV4_CUDA PROPERTY STRINGS AUTO ON OFF)
option(DSV4_PORTABLE_MMA "Build the CUDA kernels without the block-scaled MMA of SM12x: slower, to find faults" OFF)
set(DSV4_HAVE_CUDA OFF)
if(DSV4_CUDA STREQUAL "OFF")
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(DSV4_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda/bin)
  if(DSV4_NVCC AND DSV4_CUDA STREQUAL "AUTO")
    # A wrapper may be left whose toolkit was removed. enable_language would end the configuration.
    include(CheckLanguage)
    unset(CMAKE_CUDA_COMPILER CACHE)  # tried again after nvcc was mended
    set(ENV{CUDACXX} ${DSV4_NVCC})
    check_language(CUDA)
    unset(ENV{CUDACXX})
    if(NOT CMAKE_CUDA_COMPILER)
      message(STATUS "${DSV4_NVCC} does not work (CMakeFiles/CMakeError.log): the CUDA backend is not built")
      return()
    endif()
  elseif(DSV4_NVCC)
    set(CMAKE_CUDA_COMPILER ${DSV4_NVCC})
  elseif(DSV4_CUDA STREQUAL "AUTO")
    message(STATUS "no nvcc: the CUDA backend is not built")
    return()
  else()
    message(FATAL_ERROR "DSV4_CUDA=ON, but no nvcc was found; set CMAKE_CUDA_COMPILER, or DSV4_CUDA=OFF")
  endif()
endif()

set(architectures ${CMAKE_CUDA_ARCHITECTURES})
if(NOT architectures)
  set(architectures 120)
  # Every host of a GB10 is an Arm machine. The family's image should run on its SM121, which no report shows for
  # sure: its own image costs 5 MB there.
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(APPEND architectures 121a)
  endif()
endif()
# CMake 3.25 does not know family-specific targets: the flags below say what it cannot.
set(CMAKE_CUDA_ARCHITECTURES OFF)
if(DSV4_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${DSV4_CCACHE})
endif()
enable_language(CUDA)
# CMake 3.25 does not know nvcc's C++20 either.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit REQUIRED)
if(CUDAToolkit_VERSION VERSION_LESS 12.9)
  message(FATAL_ERROR "the CUDA backend needs CUDA 12.9 or newer (family-specific images), not "
                      "${CUDAToolkit_VERSION}; set DSV4_CUDA=OFF to build without it")
endif()

set(DSV4_CUDA_GENCODE)
set(DSV4_CUDA_IMAGES)      # "12.0, 12.1": for messages
set(DSV4_CUDA_IMAGE_TEST)  # of a device's capability, in C++
foreach(architecture ${architectures})
  string(REGEX MATCH "^([0-9]+)([af]?)(-real|-virtual)?$" matched "${architecture}")
  if(NOT matched)
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES: ${architecture} is no architecture")
  endif()
  set(number ${CMAKE_MATCH_1})
  set(variant ${CMAKE_MATCH_2})
  if(number STREQUAL "120" OR number STREQUAL "121")
    if(NOT variant)
      set(number 120)
      set(variant f)
    endif()
  endif()
  string(REGEX REPLACE "([0-9])$" ".\\1" dotted "${number}")
  if(variant STREQUAL "f")
    # The image of a family runs on every later member, too.
    string(REGEX REPLACE "[0-9]$" "" major "${number}")
    list(APPEND DSV4_CUDA_IMAGES "${dotted} and its family")
    list(APPEND DSV4_CUDA_IMAGE_TEST "(capability / 10 == ${major} && capability >= ${number})")
  else()
    list(APPEND DSV4_CUDA_IMAGES "${dotted}")
    list(APPEND DSV4_CUDA_IMAGE_TEST "capability == ${number}")
  endif()
  list(APPEND DSV4_CUDA_GENCODE
       "SHELL:-gencode arch=compute_${number}${variant},code=sm_${number}${variant}")
endforeach()
foreach(list_name GENCODE IMAGES IMAGE_TEST)
  list(REMOVE_DUPLICATES DSV4_CUDA_${list_name})
endforeach()
string(REPLACE "SHELL:" "" DSV4_CUDA_IMAGE_FLAGS "${DSV4_CUDA_GENCODE}")
string(REPLACE " " ";" DSV4_CUDA_IMAGE_FLAGS "${DSV4_CUDA_IMAGE_FLAGS}")
list(JOIN DSV4_CUDA_IMAGES ", " DSV4_CUDA_IMAGES)
list(JOIN DSV4_CUDA_IMAGE_TEST " || " DSV4_CUDA_IMAGE_TEST)
set(DSV4_HAVE_CUDA ON)
message(STATUS "CUDA ${CUDAToolkit_VERSION}: images for ${architectures}")
