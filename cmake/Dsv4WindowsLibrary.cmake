# SPDX-License-Identifier: Apache-2.0
# libdsv4.dll: its exports and import libraries, its version, and its symbols in a file of their own. Included by
# capi/CMakeLists.txt.
target_compile_definitions(dsv4_capi PRIVATE DSV4_BUILDING)

# What dsv4.map exports.
set(map ${CMAKE_CURRENT_SOURCE_DIR}/dsv4.map)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${map})
file(READ ${map} text)
string(REPLACE ";" "," text "${text}")  # no list
string(REGEX MATCHALL "dsv4x?_[a-z0-9_]+," symbols "${text}")
list(TRANSFORM symbols REPLACE "," "")
set(def ${CMAKE_CURRENT_BINARY_DIR}/libdsv4.def)
list(JOIN symbols "\n  " exports)
file(CONFIGURE OUTPUT ${def} CONTENT "LIBRARY libdsv4.dll\nEXPORTS\n  ${exports}\n")
target_sources(dsv4 PRIVATE ${def})

# MinGW's linker takes libdsv4.dll.a, which CMake makes; MSVC's and LLVM's take dsv4.lib.
find_program(DSV4_DLLTOOL NAMES x86_64-w64-mingw32-dlltool REQUIRED)
add_custom_command(OUTPUT dsv4.lib COMMAND ${DSV4_DLLTOOL} -d ${def} -l dsv4.lib DEPENDS ${def} VERBATIM)
add_custom_target(dsv4_import_library ALL DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/dsv4.lib)

dsv4_windows_resource(dsv4 "Inference library for DeepSeek V4 Flash" DLL)

# Debuggers find libdsv4.dll.debug by the name in the library.
add_custom_command(TARGET dsv4 POST_BUILD
  COMMAND ${CMAKE_OBJCOPY} --only-keep-debug $<TARGET_FILE:dsv4> $<TARGET_FILE:dsv4>.debug
  COMMAND ${CMAKE_OBJCOPY} --strip-all $<TARGET_FILE:dsv4>
  COMMAND ${CMAKE_COMMAND} -E chdir $<TARGET_FILE_DIR:dsv4>
          ${CMAKE_OBJCOPY} --add-gnu-debuglink=$<TARGET_FILE_NAME:dsv4>.debug $<TARGET_FILE_NAME:dsv4>
  VERBATIM)
