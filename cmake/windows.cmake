# SPDX-License-Identifier: Apache-2.0
# Toolchain file: Windows on x86-64, by Debian's mingw-w64 with POSIX threads. Other builds of GCC for Windows move
# vectors to stack addresses that are not aligned for it (GCC bug 54412); Debian's is patched, and tests/windows looks.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
# Nothing but the system's libraries is asked of the machine that runs it.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -static)
# What tools/windows_dependencies.sh built.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DSV4_WINDOWS_PREFIX)
set(CMAKE_FIND_ROOT_PATH ${DSV4_WINDOWS_PREFIX})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${DSV4_WINDOWS_PREFIX}/lib/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "")
