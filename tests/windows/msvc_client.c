/* SPDX-License-Identifier: Apache-2.0
 *
 * A client without a C library: prints the library's build and checks its ABI.
 */
#include <dsv4/dsv4.h>

__declspec(dllimport) void __stdcall ExitProcess(unsigned code);
__declspec(dllimport) void* __stdcall GetStdHandle(unsigned which);
__declspec(dllimport) int __stdcall WriteFile(void* file, const void* from, unsigned bytes,
                                              unsigned* written, void* overlapped);

void start(void) {
  const char* text = dsv4_get_build_info();
  unsigned bytes = 0, written = 0;
  while (text[bytes]) ++bytes;
  WriteFile(GetStdHandle((unsigned)-11), text, bytes, &written, 0);
  ExitProcess(dsv4_get_abi_version() == DSV4_ABI_VERSION ? 0 : 3);
}
