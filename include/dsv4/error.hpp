// SPDX-License-Identifier: Apache-2.0
//
// Shared by all C++ headers: the exception, a view of an array, and helpers that call C functions.
#ifndef DSV4_ERROR_HPP_
#define DSV4_ERROR_HPP_

#include <dsv4/error.h>

#include <cstddef>
#include <exception>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace dsv4 {
inline namespace cpp {

// Thrown by a failed call. what() is one line that names what is at fault.
class Error : public std::runtime_error {
 public:
  // `code` must not be DSV4_OK.
  Error(dsv4_status code, const std::string& message, const std::string& argument = {})
      : std::runtime_error(message),
        code_(code),
        argument_(std::make_shared<const std::string>(argument)) {}

  // The status, a DSV4_ERR_ value.
  dsv4_status code() const noexcept { return code_; }
  // The name of the status, as in "NOT_FOUND".
  const char* name() const noexcept { return dsv4_status_get_name(code_); }

  // The argument or field at fault, as in dsv4_error_get_argument. "" if there is none.
  const std::string& argument() const noexcept { return *argument_; }

 private:
  dsv4_status code_;
  std::shared_ptr<const std::string> argument_;  // shared: copies of exceptions must not throw
};

// A view of an array, like std::span. The elements must outlive it.
template <class T>
class Span {
 public:
  constexpr Span() noexcept = default;
  // Views `size` elements at `data`.
  constexpr Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  // Views a container with data() and size().
  template <class C, class = std::enable_if_t<
                         !std::is_same_v<std::decay_t<C>, Span> &&
                         std::is_convertible_v<decltype(std::declval<C&>().data()), T*>>>
  constexpr Span(C&& container) noexcept : Span(container.data(), container.size()) {}
  // Views the elements of an argument, as in f({1, 2, 3}).
  constexpr Span(std::initializer_list<std::remove_const_t<T>> list) noexcept
      : Span(list.begin(), list.size()) {}

  // The elements, as in any container.
  constexpr T* data() const noexcept { return data_; }
  // The number of elements.
  constexpr std::size_t size() const noexcept { return size_; }
  // True if there are no elements.
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

// The exception for `status`. Takes ownership of `error`.
inline Error TakeError(dsv4_status status, dsv4_error* error) {
  struct Free {
    void operator()(dsv4_error* e) const noexcept { dsv4_error_free(e); }
  };
  const std::unique_ptr<dsv4_error, Free> owned(error);
  return Error(status, dsv4_error_get_message(error), dsv4_error_get_argument(error));
}

// Calls function(arguments..., &error). Throws an Error unless it returns DSV4_OK.
template <class Function, class... Arguments>
void Call(Function function, Arguments... arguments) {
  dsv4_error* error = nullptr;
  const dsv4_status status = function(arguments..., &error);
  if (status != DSV4_OK) throw TakeError(status, error);
}

// Calls a function that takes a callback. Rethrows the exception that the callback left in
// `thrown`.
template <class Function, class... Arguments>
void CallBack(std::exception_ptr& thrown, Function function, Arguments... arguments) {
  dsv4_error* error = nullptr;
  const dsv4_status status = function(arguments..., &error);
  if (thrown) {
    dsv4_error_free(error);
    std::rethrow_exception(std::exchange(thrown, nullptr));
  }
  if (status != DSV4_OK) throw TakeError(status, error);
}

// Returns everything that call(data, capacity, &needed) writes. One call suffices if that is at
// most `guess` elements.
template <class Container, class Function>
Container ReadAll(std::size_t guess, Function&& call) {
  Container result(guess, typename Container::value_type());
  for (;;) {
    std::size_t needed = 0;
    call(result.data(), result.size(), &needed);
    const bool complete = needed <= result.size();
    result.resize(needed);
    if (complete) return result;
  }
}

// An owned handle, closed by `close`.
template <auto close>
struct Closer {
  template <class T>
  void operator()(T* handle) const noexcept {
    close(handle);
  }
};
template <class T, auto close>
using Handle = std::unique_ptr<T, Closer<close>>;

// Throws if the loaded library has another ABI version than these headers. Functions that open
// objects call it.
inline void CheckAbi() {
  if (dsv4_get_abi_version() == DSV4_ABI_VERSION) return;
  throw Error(DSV4_ERR_VERSION_MISMATCH, "libdsv4 " + std::string(dsv4_get_version()) +
                                             " has ABI " + std::to_string(dsv4_get_abi_version()) +
                                             ", this program was built for ABI " +
                                             std::to_string(DSV4_ABI_VERSION));
}

}  // namespace detail
}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_ERROR_HPP_
