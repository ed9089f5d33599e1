# SPDX-License-Identifier: Apache-2.0
# The libraries that the library is built on; tools/tune and the tests also ask for protobuf. Debian 12: see tools/install_dependencies.sh.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(simdjson REQUIRED)
find_package(hwy REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
# Only its header: lib/io/content_hash.cc compiles the functions in.
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
