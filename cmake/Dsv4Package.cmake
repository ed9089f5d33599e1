# SPDX-License-Identifier: Apache-2.0
# Debian packages by cpack, one for each component of Dsv4Install.cmake, installed where
# CMAKE_INSTALL_PREFIX says: Debian's own layout is that of a tree configured with
# -DCMAKE_INSTALL_PREFIX=/usr (docs/release.md).
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime development chat worker tools)
if(TARGET dsv4-desktop)
  list(APPEND CPACK_COMPONENTS_ALL desktop)
endif()
if(TARGET dsv4-server)
  list(APPEND CPACK_COMPONENTS_ALL server)
endif()
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_OUTPUT_FILE_PREFIX packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_BINARY_DIR}/cmake/Dsv4DebianFiles.cmake)

if(NOT CPACK_PACKAGE_CONTACT)
  set(CPACK_PACKAGE_CONTACT "The dsv4 maintainers <maintainers@dsv4.example>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# What the programs are linked with; the library of this build is a dependency stated below.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/capi)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

# dsv4_debian_package(COMPONENT NAME SECTION DEPENDS DESCRIPTION): the description's first line is the
# synopsis.
macro(dsv4_debian_package component name section depends description)
  set(CPACK_DEBIAN_${component}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${component}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${component}_PACKAGE_DEPENDS "${depends}")
  set(CPACK_DEBIAN_${component}_DESCRIPTION "${description}")
endmacro()
set(version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
set(library libdsv4-${DSV4_ABI})
dsv4_debian_package(RUNTIME ${library} libs ""
"inference library for DeepSeek V4 Flash (shared library)
libdsv4 runs language models of the DeepSeek V4 family inside of other
programs, behind an API in C.")
dsv4_debian_package(DEVELOPMENT libdsv4-dev libdevel
"${library} (= ${version}), libabsl-dev, libhwy-dev, libpcre2-dev, libsimdjson-dev"
"inference library for DeepSeek V4 Flash (development files)
Headers for C and C++, the static library, a CMake package and a pkg-config
file. The other development packages are what the static library is built on.")
dsv4_debian_package(CHAT dsv4-chat misc "${library} (= ${version})"
"chat with models of the DeepSeek V4 family on the command line
dsv4-chat answers single questions or leads conversations, with reasoning,
tools and JSON output. It brings no model: name a folder in the format of
DeepSeek-V4-Flash with -m.")
dsv4_debian_package(DESKTOP dsv4-desktop misc "${library} (= ${version})"
"chat with models of the DeepSeek V4 family in a window
dsv4-desktop opens a model folder for conversations with branches, reasoning,
tools and statistics. It contains no model.")
dsv4_debian_package(SERVER dsv4-server misc "${library} (= ${version})"
"serve models of the DeepSeek V4 family over HTTP
dsv4-server answers clients of OpenAI's and Anthropic's APIs. It contains no
model: name a folder in the format of DeepSeek-V4-Flash with --model.
dsv4-gates tests a server with such an API.")
dsv4_debian_package(WORKER dsv4-worker misc "${library} (= ${version})"
"run models of the DeepSeek V4 family on several machines
dsv4-worker computes a part of a model that dsv4-chat or dsv4-server uses on
this or another machine. It needs an NVIDIA GPU and NCCL.")
dsv4_debian_package(TOOLS dsv4-tools misc "${library} (= ${version})"
"verification and benchmarks of libdsv4
dsv4-verify compares a build with recorded results of the published model
code, and identifies checkpoints; dsv4-bench measures speed.")
# The linker's cache learns of the library by dpkg's trigger.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)

configure_file(${PROJECT_SOURCE_DIR}/cmake/Dsv4DebianFiles.cmake.in
               ${PROJECT_BINARY_DIR}/cmake/Dsv4DebianFiles.cmake @ONLY)
include(CPack)
