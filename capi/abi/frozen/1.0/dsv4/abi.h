/* SPDX-License-Identifier: Apache-2.0
 *
 * What every public header shares: the export macro, the struct rule, version queries.
 *
 * Struct rule. Every struct begins with `uint32_t struct_size`; set it with the struct's _INIT
 * macro. A caller that was built against an older header passes a smaller size: the fields it lacks
 * mean 0, which is always the old behaviour. A caller built against a newer one passes a larger
 * size: it is accepted when the fields that this library does not know are all 0, else
 * DSV4_ERR_UNSUPPORTED. Structs that the library fills are filled up to the caller's size, with 0
 * where it knows no field. A size below the struct's first release or above 4096 is
 * DSV4_ERR_INVALID_ARGUMENT, as is a reserved field other than 0 in a struct that comes in.
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

/* The ABI number of the library at run time. A host built against another DSV4_ABI_VERSION must not
 * call anything else. */
DSV4_API uint32_t dsv4_abi_version(void) DSV4_NOEXCEPT;

/* "0.1.0": static storage. */
DSV4_API const char* dsv4_version(void) DSV4_NOEXCEPT;

/* One line, "dsv4 VERSION (COMMIT), ..." with compiler, backends and the instruction set in use.
 * Static storage. */
DSV4_API const char* dsv4_build_info(void) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_ABI_H_ */
