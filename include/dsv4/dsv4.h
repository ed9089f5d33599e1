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
 * a non-const handle needs exclusive use (sessions and parsers detect misuse: BUSY). Exceptions are
 * dsv4_engine* in the functions that open sessions and in dsv4_engine_step and
 * dsv4_engine_step_events, which are concurrent, and dsv4_session* in dsv4_session_cancel, _stop
 * and _resume, which any thread may call at any time. Every handle may move between threads.
 * Different engines, sessions, tokenizers and parsers never need a lock of the host's. Calls of
 * several sessions of one engine that run at the same time are computed together. The worker
 * threads of an engine end with it; there are no others.
 *
 * Callbacks run on the thread of the call that was given them (a token mask's on that of the call
 * that steps, the log's on any that logs) and must not call back into their session, but to cancel
 * it. A token mask is asked inside a step: its calls that would compute on another session of the
 * engine (prefill, step) are BUSY, and it must not wait for a thread that makes such a call. They
 * must return: no exception and no longjmp may leave them.
 *
 * Lifetimes. What the library allocates, only the library frees. Pointers that a function hands out
 * are views; each says how long it lives. Arguments are read during the call only, with one
 * exception that says so: the user pointer of a token mask. A session keeps what it needs of its
 * engine; views of an engine end with its handle.
 *
 * Errors. Every fallible function returns a dsv4_status, 0 = OK, and fills the optional last
 * argument with an owned error: see <dsv4/error.h>. A failed call changes nothing unless its
 * comment says so. Options and values that this library does not know are errors, never ignored.
 * What is in effect can be read back: dsv4_engine_get_info, dsv4_session_get_sampling.
 *
 * Stack. 128 KiB of the calling thread's stack are enough for every function of <dsv4/chat.h>,
 * <dsv4/grammar.h>, <dsv4/parser.h> and <dsv4/tokenizer.h>, however deep the JSON that they are
 * given is nested.
 *
 * The library never prints, exits, installs signal handlers, throws, or reads the environment, the
 * locale or the working folder (but for relative paths that it is given).
 *
 * Determinism. The same tokens come of the same build, device, model, options, sampling parameters
 * and seed, bit for bit. What else runs does not matter: other sessions and their batches, the
 * number of threads, in what pieces a prompt is computed, and what of it comes from the prefix
 * cache, a fork, a rewind or a saved session, and whether tokens are drafted. What does matter:
 * another build or compiler; another device or instruction set, and with them another backend;
 * other numerics; a cache format of FP32 or EXACT numerics (PACKED and BF16 give the same bits). A
 * cancelled or failed call changes no later token.
 */
#ifndef DSV4_DSV4_H_
#define DSV4_DSV4_H_

#include <dsv4/abi.h>
#include <dsv4/chat.h>
#include <dsv4/conversation.h>
#include <dsv4/engine.h>
#include <dsv4/error.h>
#include <dsv4/grammar.h>
#include <dsv4/log.h>
#include <dsv4/parser.h>
#include <dsv4/sampling.h>
#include <dsv4/session.h>
#include <dsv4/tokenizer.h>

#endif /* DSV4_DSV4_H_ */
