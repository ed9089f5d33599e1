/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and owned errors. Every fallible function returns a dsv4_status (0 = OK) and takes,
 * as its last argument, a nullable dsv4_error** that receives an owned error object on failure (and
 * is set to NULL on success). The object belongs to the caller, may be read from any thread and is
 * released with dsv4_error_free.
 */
#ifndef DSV4_ERROR_H_
#define DSV4_ERROR_H_

#include <dsv4/abi.h>

DSV4_BEGIN_DECLS

/* Values are stable and only ever added. */
typedef int32_t dsv4_status;
#define DSV4_OK ((dsv4_status)0)
#define DSV4_ERR_INVALID_ARGUMENT ((dsv4_status)-1) /* a parameter, option or value is wrong */
#define DSV4_ERR_NOT_FOUND ((dsv4_status)-2)        /* a file, tensor or tokenizer is missing */
#define DSV4_ERR_IO ((dsv4_status)-3)               /* the system could not read or write */
#define DSV4_ERR_CORRUPT ((dsv4_status)-4)          /* data contradicts its format */
#define DSV4_ERR_UNSUPPORTED ((dsv4_status)-5)      /* valid, but this build cannot do it */
#define DSV4_ERR_OUT_OF_HOST_MEMORY ((dsv4_status)-6)
#define DSV4_ERR_OUT_OF_DEVICE_MEMORY ((dsv4_status)-7)
#define DSV4_ERR_CONTEXT_FULL ((dsv4_status)-8)  /* more tokens than the context holds */
#define DSV4_ERR_OUT_OF_BLOCKS ((dsv4_status)-9) /* the KV block pool is full */
#define DSV4_ERR_CANCELLED ((dsv4_status)-10)    /* a callback or another thread asked to stop */
#define DSV4_ERR_BUSY ((dsv4_status)-11)         /* the handle is in use by another call */
#define DSV4_ERR_DEVICE_LOST ((dsv4_status)-12)
#define DSV4_ERR_VERSION_MISMATCH ((dsv4_status)-13)
#define DSV4_ERR_INTERNAL ((dsv4_status)-14) /* a bug in the library: please report it */

typedef struct dsv4_error dsv4_error;

/* The error's code; DSV4_OK for NULL. */
DSV4_API dsv4_status dsv4_error_code(const dsv4_error* error) DSV4_NOEXCEPT;

/* One line of UTF-8 that names the file, key, tensor, argument or value at fault. Lives as long as
 * the error; "" for NULL. */
DSV4_API const char* dsv4_error_message(const dsv4_error* error) DSV4_NOEXCEPT;

/* The argument that was refused, as its declaration spells it: a parameter ("path"), an element
 * ("ids[3]") or a field ("options.threads", "sampling.top_p", "messages[0].role"). Lives as long as
 * the error; "" where no argument is at fault, or none alone, and for NULL. */
DSV4_API const char* dsv4_error_argument(const dsv4_error* error) DSV4_NOEXCEPT;

/* Accepts NULL. */
DSV4_API void dsv4_error_free(dsv4_error* error) DSV4_NOEXCEPT;

/* "INVALID_ARGUMENT", ...; "UNKNOWN" for other numbers. Static storage. */
DSV4_API const char* dsv4_status_name(dsv4_status status) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_ERROR_H_ */
