# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, in the components that a distribution makes packages of:
# `runtime` (the shared library), `development` (headers, archive, CMake package, pkg-config file),
# `chat`, `desktop`, `server`, `worker` and `tools` (programs).
include(CMakePackageConfigHelpers)
get_property(DSV4_ABI GLOBAL PROPERTY DSV4_ABI)
get_property(others GLOBAL PROPERTY DSV4_OTHER_LIBRARIES)

# The library and its target dsv4::dsv4; if it is shared, also the archive as dsv4::dsv4_static. The
# two are exported apart: a client of the shared library needs none of the archive's packages.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dsv4)
install(TARGETS dsv4 EXPORT dsv4Targets
        LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
        ARCHIVE COMPONENT development
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT dsv4Targets NAMESPACE dsv4:: DESTINATION ${package_dir} COMPONENT development)
if(BUILD_SHARED_LIBS)
  install(TARGETS dsv4_static EXPORT dsv4StaticTargets ARCHIVE COMPONENT development
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT dsv4StaticTargets NAMESPACE dsv4:: DESTINATION ${package_dir} COMPONENT development)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/dsv4 TYPE INCLUDE COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

# The CMake package. The archive's clients look for what it asks for by the same names as this build.
set(DSV4_ARCHIVE_DEPENDENCIES)
set(requires)
set(libraries)
foreach(other ${others})
  if(other MATCHES "^absl::(.+)$")
    list(APPEND DSV4_ARCHIVE_DEPENDENCIES "find_dependency(absl)")
    list(APPEND requires absl_${CMAKE_MATCH_1})
  elseif(other STREQUAL hwy::hwy)
    list(APPEND DSV4_ARCHIVE_DEPENDENCIES "find_dependency(hwy)")
    list(APPEND requires libhwy)
  elseif(other STREQUAL simdjson::simdjson)
    list(APPEND DSV4_ARCHIVE_DEPENDENCIES "find_dependency(simdjson)")
    list(APPEND requires simdjson)
  elseif(other STREQUAL PkgConfig::PCRE2)
    list(APPEND DSV4_ARCHIVE_DEPENDENCIES "find_dependency(PkgConfig)"
                "dsv4_find_module(PCRE2 libpcre2-8)")
    list(APPEND requires libpcre2-8)
  elseif(other STREQUAL Threads::Threads)
    list(APPEND DSV4_ARCHIVE_DEPENDENCIES "find_dependency(Threads)")
    list(APPEND libraries -pthread)
  elseif(other MATCHES "^(dl|rt|m)$|DL_LIBS")
    list(APPEND libraries -l${other})
  else()
    message(FATAL_ERROR "cmake/Dsv4Install.cmake: how do clients of the archive find ${other}?")
  endif()
endforeach()
list(REMOVE_DUPLICATES DSV4_ARCHIVE_DEPENDENCIES)
list(REMOVE_DUPLICATES libraries)
list(SORT requires)
list(JOIN DSV4_ARCHIVE_DEPENDENCIES "\n  " DSV4_ARCHIVE_DEPENDENCIES)
set(DSV4_IS_SHARED ${BUILD_SHARED_LIBS})
set(build ${PROJECT_BINARY_DIR}/cmake)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/dsv4Config.cmake.in ${build}/dsv4Config.cmake
                              INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor version may break its callers.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(${build}/dsv4ConfigVersion.cmake COMPATIBILITY ${compatibility})
install(FILES ${build}/dsv4Config.cmake ${build}/dsv4ConfigVersion.cmake DESTINATION ${package_dir}
        COMPONENT development)

# pkg-config. What the archive asks for is written as libraries: pkg-config gives the compiler flags of
# packages in Requires.private to every client. Where there is the archive alone, every client links them.
pkg_check_modules(DSV4_ARCHIVE REQUIRED QUIET ${requires})
list(APPEND libraries ${DSV4_ARCHIVE_STATIC_LDFLAGS} -lstdc++ -lm)
list(TRANSFORM CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES PREPEND -L OUTPUT_VARIABLE implicit)
list(REMOVE_ITEM libraries ${implicit})
list(JOIN libraries " " libraries)
set(DSV4_PC_LIBRARIES "Libs: -L\${libdir} -ldsv4")
if(BUILD_SHARED_LIBS)
  string(APPEND DSV4_PC_LIBRARIES "\nLibs.private:")
endif()
string(APPEND DSV4_PC_LIBRARIES " ${libraries}")
foreach(dir LIBDIR INCLUDEDIR)
  file(RELATIVE_PATH DSV4_PC_${dir} ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_${dir}})
endforeach()
file(RELATIVE_PATH DSV4_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" DSV4_PC_PREFIX ${DSV4_PC_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/dsv4.pc.in ${build}/dsv4.pc @ONLY)
install(FILES ${build}/dsv4.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# The programs. In the system's own folders the dynamic linker finds the library. Elsewhere the
# programs find it relative to themselves, wherever the install tree is put.
set(run_path)
if(BUILD_SHARED_LIBS AND NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  file(RELATIVE_PATH to_library ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set(run_path "$ORIGIN/${to_library}")
endif()
foreach(program dsv4-chat dsv4-desktop dsv4-server dsv4-gates dsv4-worker dsv4-bench dsv4-verify)
  if(NOT TARGET ${program})
    continue()
  endif()
  # dsv4-verify is linked with the internal libraries.
  if(NOT program STREQUAL dsv4-verify)
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "${run_path}")
  endif()
  set(component tools)
  if(program STREQUAL dsv4-gates)
    set(component server)
  elseif(program STREQUAL dsv4-desktop)
    set(component desktop)
    install(FILES ${PROJECT_SOURCE_DIR}/examples/desktop/dsv4-desktop.desktop
            DESTINATION ${CMAKE_INSTALL_DATADIR}/applications COMPONENT desktop)
  endif()
  set(manual ${PROJECT_SOURCE_DIR}/examples/${program}/${program}.1)
  if(EXISTS ${manual})
    string(REPLACE dsv4- "" component ${program})
    install(FILES ${manual} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
  endif()
  install(TARGETS ${program} RUNTIME COMPONENT ${component})
endforeach()
# The unit names the program by its path: it is of use in the system's own folders alone.
if(TARGET dsv4-server AND CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  configure_file(${PROJECT_SOURCE_DIR}/examples/dsv4-server/dsv4-server.service.in
                 ${build}/dsv4-server.service @ONLY)
  install(FILES ${build}/dsv4-server.service DESTINATION lib/systemd/system COMPONENT server)
endif()

# Licence and notices go with the component that every other one needs.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE TYPE DOC COMPONENT runtime)
# A project that this one is a part of makes its own packages.
if(BUILD_SHARED_LIBS AND PROJECT_IS_TOP_LEVEL)
  include(Dsv4Package)
endif()
