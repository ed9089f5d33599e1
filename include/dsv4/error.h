/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and error objects.
 *
 * Every function that can fail returns a dsv4_status (0 = OK). Its last argument is a dsv4_error**,
 * which may be NULL. On failure it receives an error object, on success NULL. The caller owns the
 * object and releases it with dsv4_error_free. Any thread may read it.
 */
#ifndef DSV4_ERROR_H_
#define DSV4_ERROR_H_

#include <dsv4/abi.h>

DSV4_BEGIN_DECLS

/* Values never change; new ones may be added. */
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
#define DSV4_ERR_INTERNAL ((dsv4_status)-14)  /* a bug in the library: please report it */
#define DSV4_ERR_SUSPENDED ((dsv4_status)-15) /* the engine is suspended: dsv4_engine_resume */

typedef struct dsv4_error dsv4_error;

/* One line of UTF-8 that names the file, key, tensor, argument or value at fault. The string lives
 * as long as the error. "" for NULL. */
DSV4_API const char* dsv4_error_get_message(const dsv4_error* error) DSV4_NOEXCEPT;

/* The argument that was refused, spelled as in its declaration: a parameter ("path"), an element
 * ("ids[3]") or a field ("options.threads", "sampling.top_p", "messages[0].role"). "" if no single
 * argument is at fault, and for NULL. The string lives as long as the error. */
DSV4_API const char* dsv4_error_get_argument(const dsv4_error* error) DSV4_NOEXCEPT;

/* Frees the error. Accepts NULL. */
DSV4_API void dsv4_error_free(dsv4_error* error) DSV4_NOEXCEPT;

/* The name of a status code, as in "INVALID_ARGUMENT". "UNKNOWN" for other numbers. Static storage.
 */
DSV4_API const char* dsv4_status_get_name(dsv4_status status) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_ERROR_H_ */
