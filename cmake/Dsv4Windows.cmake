# SPDX-License-Identifier: Apache-2.0
# What targets for Windows have beside those for Linux. Included by CMakeLists.txt where WIN32 is.
find_program(DSV4_WINDRES NAMES x86_64-w64-mingw32-windres REQUIRED)
# Windows 10. What its headers and those of the static PCRE2 ask for; printf as C99 has it.
target_compile_definitions(dsv4_flags INTERFACE _WIN32_WINNT=0x0A00 NOMINMAX WIN32_LEAN_AND_MEAN PCRE2_STATIC
                                                __USE_MINGW_ANSI_STDIO=1
                                                _POSIX_THREAD_SAFE_FUNCTIONS=200112L)

# dsv4_windows_resource(TARGET DESCRIPTION DLL|EXE): the version that the system shows. Programs also say that their
# strings are UTF-8 and their paths long, so that arguments, files and the console have any letters.
function(dsv4_windows_resource target description kind)
  get_target_property(file ${target} OUTPUT_NAME)
  if(NOT file)
    set(file ${target})
  endif()
  if(kind STREQUAL "DLL")
    set(type 0x2L)
    set(file lib${file}.dll)
    set(manifest)
  else()
    set(type 0x1L)
    set(file ${file}.exe)
    set(manifest "1 24 \"${PROJECT_SOURCE_DIR}/cmake/windows/program.manifest\"")
  endif()
  string(REPLACE "." "," numbers ${PROJECT_VERSION})
  set(resource ${CMAKE_CURRENT_BINARY_DIR}/${target}.rc)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/windows/version.rc.in ${resource} @ONLY)
  # By a command: CMake gives windres the definitions of C++, which its shell does not take.
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}_resource.o)
  add_custom_command(OUTPUT ${object} COMMAND ${DSV4_WINDRES} ${resource} ${object}
                     DEPENDS ${resource} ${PROJECT_SOURCE_DIR}/cmake/windows/program.manifest VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${target} PRIVATE ${object})
endfunction()

# dsv4_windows_program(TARGET DESCRIPTION): a program with that, and with streams of bytes.
function(dsv4_windows_program target description)
  dsv4_windows_resource(${target} ${description} EXE)
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/examples/console/program_windows.cc)
endfunction()
