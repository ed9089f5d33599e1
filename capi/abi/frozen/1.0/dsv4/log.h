/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's log: silent until a callback is set.
 */
#ifndef DSV4_LOG_H_
#define DSV4_LOG_H_

#include <dsv4/abi.h>

DSV4_BEGIN_DECLS

typedef int32_t dsv4_log_level;
#define DSV4_LOG_ERROR ((dsv4_log_level)1)
#define DSV4_LOG_WARNING ((dsv4_log_level)2)
#define DSV4_LOG_INFO ((dsv4_log_level)3)

/* Called on whatever thread logs, possibly several at once; `message` is one line of UTF-8 that
 * lives during the call. */
typedef void (*dsv4_log_fn)(void* user, dsv4_log_level level, const char* message);

/* Sets the process-wide callback for messages up to `level`; NULL silences. When it returns, no
 * call of the callback set before is running or will follow. Must not be called from a callback. */
DSV4_API void dsv4_log_set_callback(dsv4_log_fn callback, void* user,
                                    dsv4_log_level level) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_LOG_H_ */
