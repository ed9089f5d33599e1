// SPDX-License-Identifier: Apache-2.0
//
// The library's log.
#ifndef DSV4_LOG_HPP_
#define DSV4_LOG_HPP_

#include <dsv4/log.h>

#include <functional>
#include <string>
#include <utility>

namespace dsv4 {
inline namespace cpp {

// Receives one message. Several threads may call it at once. Exceptions are dropped, because no
// call could return them.
using LogCallback = std::function<void(dsv4_log_level level, const std::string& message)>;

// Sends the log messages of the process up to `level` to a callback while the object lives. The
// newest of several objects receives them.
class Log {
 public:
  // From here on.
  explicit Log(LogCallback callback, dsv4_log_level level = DSV4_LOG_INFO)
      : callback_(std::move(callback)) {
    dsv4_log_set_callback(&Forward, this, level);
  }
  ~Log() { dsv4_log_set_callback(nullptr, nullptr, DSV4_LOG_ERROR); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

 private:
  static void Forward(void* self, dsv4_log_level level, const char* message) noexcept {
    try {
      static_cast<const Log*>(self)->callback_(level, message);
    } catch (...) {
    }
  }

  LogCallback callback_;
};

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_LOG_HPP_
