/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's log. Nothing is logged until the host sets a callback.
 */
#ifndef DSV4_LOG_H_
#define DSV4_LOG_H_

#include <dsv4/abi.h>

DSV4_BEGIN_DECLS

typedef int32_t dsv4_log_level;
#define DSV4_LOG_ERROR ((dsv4_log_level)1)
#define DSV4_LOG_WARNING ((dsv4_log_level)2)
#define DSV4_LOG_INFO ((dsv4_log_level)3)

/* Receives one message. Several threads may call it at once. `message` is one line of UTF-8 and
 * lives until the callback returns. */
typedef void (*dsv4_log_fn)(void* user, dsv4_log_level level, const char* message);

/* Sets the callback of the process for messages up to `level`. NULL turns logging off. When the
 * function returns, the previous callback is not running and will not be called again. Must not be
 * called from a log callback. */
DSV4_API void dsv4_log_set_callback(dsv4_log_fn callback, void* user,
                                    dsv4_log_level level) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_LOG_H_ */
