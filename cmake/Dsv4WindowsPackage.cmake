# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where for Windows, and `cpack` into an archive and an installer: a folder that works
# wherever it is put, with the library beside the programs.
install(TARGETS dsv4 RUNTIME DESTINATION bin ARCHIVE DESTINATION lib)
install(FILES $<TARGET_FILE:dsv4>.debug DESTINATION bin)
install(FILES ${PROJECT_BINARY_DIR}/capi/dsv4.lib ${PROJECT_BINARY_DIR}/capi/libdsv4.def DESTINATION lib)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/cmake/dsv4.pc @ONLY CONTENT
"prefix=\${pcfiledir}/../..
Name: dsv4
Description: Inference library for DeepSeek V4 Flash
Version: @PROJECT_VERSION@
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -ldsv4
")
install(FILES ${PROJECT_BINARY_DIR}/cmake/dsv4.pc DESTINATION lib/pkgconfig)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/dsv4 DESTINATION include
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
foreach(program dsv4-chat dsv4-server dsv4-gates dsv4-bench dsv4-verify)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION bin)
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/dsv4-tiny DESTINATION models)
install(FILES ${PROJECT_SOURCE_DIR}/examples/hello.c ${PROJECT_SOURCE_DIR}/examples/hello.cc DESTINATION examples)
install(FILES ${PROJECT_SOURCE_DIR}/docs/windows.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION doc)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE DESTINATION .)
# Of what is linked into the library and the programs.
install(DIRECTORY ${DSV4_WINDOWS_PREFIX}/licenses DESTINATION .)

set(CPACK_GENERATOR ZIP)
find_program(DSV4_MAKENSIS makensis)
if(DSV4_MAKENSIS)
  list(APPEND CPACK_GENERATOR NSIS)
endif()
set(CPACK_OUTPUT_FILE_PREFIX packages)
set(CPACK_PACKAGE_FILE_NAME dsv4-${PROJECT_VERSION}-windows-x86_64)
set(CPACK_PACKAGE_INSTALL_DIRECTORY dsv4)
set(CPACK_PACKAGE_VENDOR "The dsv4 maintainers")
set(CPACK_PACKAGE_CONTACT "The dsv4 maintainers <maintainers@dsv4.example>")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_NSIS_DISPLAY_NAME "dsv4 ${PROJECT_VERSION} (experimental)")
# An installer of 64 bits, as all else: Wine alone runs it.
set(CPACK_NSIS_DEFINES "Target amd64-unicode")
set(CPACK_NSIS_MODIFY_PATH ON)
set(CPACK_NSIS_UNINSTALL_NAME uninstall)
include(CPack)
