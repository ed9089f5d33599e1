/* SPDX-License-Identifier: Apache-2.0
 *
 * dsv4: an embeddable library that runs DeepSeek V4 Flash.
 *
 * Objects. A dsv4_engine is one model in memory; a dsv4_session is one conversation's timeline on
 * it; a dsv4_tokenizer and a dsv4_parser work without either. Each handle has an _open and a
 * _close; _close accepts NULL. A session keeps its engine's memory alive, so handles may be closed
 * in any order.
 *
 * Threads. A parameter that is a pointer to a const handle may be used by several threads at once;
 * a non-const handle needs exclusive use (a session detects misuse: BUSY), except dsv4_engine* in
 * dsv4_session_open and dsv4_engine_step, which is concurrent, and dsv4_session* in
 * dsv4_session_cancel. Every handle may move between threads. Callbacks run on the thread of the
 * call that was given them (a token mask's on that of the call that steps), and must not call back
 * into their session, but to cancel it.
 *
 * Lifetimes. What the library allocates, only the library frees. Pointers that a function hands out
 * are views; each says how long it lives. Arguments are read during the call only.
 *
 * Errors. Every fallible function returns a dsv4_status, 0 = OK, and fills the optional last
 * argument with an owned error: see <dsv4/error.h>. A failed call changes nothing unless its
 * comment says so.
 *
 * The library never prints, exits, installs signal handlers, reads the environment or throws.
 *
 * Determinism. The same build on the same processor with the same options and seed gives the same
 * tokens, whatever else runs and whatever the number of threads. Another instruction set, backend
 * or build may round differently.
 */
#ifndef DSV4_DSV4_H_
#define DSV4_DSV4_H_

#include <dsv4/abi.h>
#include <dsv4/chat.h>
#include <dsv4/conversation.h>
#include <dsv4/engine.h>
#include <dsv4/error.h>
#include <dsv4/log.h>
#include <dsv4/parser.h>
#include <dsv4/sampling.h>
#include <dsv4/session.h>
#include <dsv4/tokenizer.h>

#endif /* DSV4_DSV4_H_ */
