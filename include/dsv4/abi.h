/* SPDX-License-Identifier: Apache-2.0
 *
 * The export macro, the struct rule and version queries, shared by all public headers.
 *
 * Struct rule. Every struct begins with `uint32_t struct_size`. Set it with the struct's _INIT
 * macro. Structs grow at their end only:
 * - A caller built against an older header passes a smaller size. The missing fields count as 0,
 *   and 0 always means the old behavior.
 * - A caller built against a newer header passes a larger size. The call succeeds if all fields
 *   that this library does not know are 0; otherwise it returns DSV4_ERR_UNSUPPORTED.
 * - Output structs are filled up to the caller's size. Fields that the library does not know are
 *   set to 0.
 * - DSV4_ERR_INVALID_ARGUMENT: the size is smaller than the struct was in release 1.0, or above
 *   4096; or a reserved field of an input struct is not 0.
 */
#ifndef DSV4_ABI_H_
#define DSV4_ABI_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#if defined(DSV4_BUILDING)
#define DSV4_API __declspec(dllexport)
#else
#define DSV4_API __declspec(dllimport)
#endif
#else
#define DSV4_API __attribute__((visibility("default")))
#endif

/* C++: the functions do not throw. */
#ifdef __cplusplus
#define DSV4_NOEXCEPT noexcept
#define DSV4_BEGIN_DECLS extern "C" {
#define DSV4_END_DECLS }
#else
#define DSV4_NOEXCEPT
#define DSV4_BEGIN_DECLS
#define DSV4_END_DECLS
#endif

#define DSV4_ABI_VERSION 1u

DSV4_BEGIN_DECLS

/* The ABI version of the loaded library. If it differs from DSV4_ABI_VERSION, the host must not
 * call any other function. */
DSV4_API uint32_t dsv4_get_abi_version(void) DSV4_NOEXCEPT;

/* The library's version, as in "0.1.0". Static storage. */
DSV4_API const char* dsv4_get_version(void) DSV4_NOEXCEPT;

/* One line: "dsv4 VERSION (COMMIT), ...", with the compiler, the backends and the instruction set
 * in use. Static storage. */
DSV4_API const char* dsv4_get_build_info(void) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_ABI_H_ */
