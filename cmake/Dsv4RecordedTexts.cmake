# SPDX-License-Identifier: Apache-2.0
# Recorded texts for tests, in recorded/ of the build folder: 4.4 MB of JSON, a tenth of that compressed.
set(archive ${PROJECT_SOURCE_DIR}/tests/recorded_texts.tar.xz)
set(DSV4_RECORDED_TEXTS ${PROJECT_BINARY_DIR}/recorded)
if(${archive} IS_NEWER_THAN ${DSV4_RECORDED_TEXTS}/unpacked)
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${DSV4_RECORDED_TEXTS})
  file(TOUCH ${DSV4_RECORDED_TEXTS}/unpacked)
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${archive})
