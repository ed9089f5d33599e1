// SPDX-License-Identifier: Apache-2.0
//
// dsv4 for C++17: RAII handles, containers and exceptions over the C functions. The headers have no
// compiled part, so programs depend on the C ABI only.
//
// - Handles can be moved, not copied. A moved-from handle can be assigned to and destroyed.
// - get() returns the C handle of an object.
// - Constants (DSV4_ROLE_USER, ...), dsv4_get_version() and dsv4_get_build_info() are those of the
//   C API.
// - Ownership, threads and errors are as in the C header of the same name.
// - A failed call throws an Error.
// - Names are in an inline namespace, so that they cannot clash with the library's own in a static
//   archive.
// - Callbacks may throw. The call that runs the callback is cancelled and rethrows the exception.
#ifndef DSV4_DSV4_HPP_
#define DSV4_DSV4_HPP_

#include <dsv4/dsv4.h>
#include <dsv4/chat.hpp>
#include <dsv4/conversation.hpp>
#include <dsv4/engine.hpp>
#include <dsv4/error.hpp>
#include <dsv4/grammar.hpp>
#include <dsv4/kept_conversations.hpp>
#include <dsv4/log.hpp>
#include <dsv4/parser.hpp>
#include <dsv4/queue.hpp>
#include <dsv4/sampling.hpp>
#include <dsv4/session.hpp>
#include <dsv4/tokenizer.hpp>

#endif  // DSV4_DSV4_HPP_
