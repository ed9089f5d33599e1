// SPDX-License-Identifier: Apache-2.0
//
// dsv4 for C++17: handles that close themselves, containers and exceptions over the C functions, in
// headers alone. So programs depend on the C ABI and on no C++ one.
//
// Handles are moved, not copied; a handle that was moved from may be assigned to and destroyed.
// Constants (DSV4_ROLE_USER, ...), dsv4_version() and dsv4_build_info() are used as C has them, and
// get() gives the C handle of anything. Contracts are those of the C functions, in the C header of
// the same name: who owns what, threads, errors and what is kept after them. A failed call throws
// an Error.
//
// Callbacks may throw: the call that they were given to is cancelled, and throws it.
#ifndef DSV4_DSV4_HPP_
#define DSV4_DSV4_HPP_

#include <dsv4/dsv4.h>
#include <dsv4/chat.hpp>
#include <dsv4/conversation.hpp>
#include <dsv4/engine.hpp>
#include <dsv4/error.hpp>
#include <dsv4/grammar.hpp>
#include <dsv4/log.hpp>
#include <dsv4/parser.hpp>
#include <dsv4/sampling.hpp>
#include <dsv4/session.hpp>
#include <dsv4/tokenizer.hpp>

#endif  // DSV4_DSV4_HPP_
