/* SPDX-License-Identifier: Apache-2.0
 *
 * dsv4: an embeddable library that runs DeepSeek V4 Flash.
 *
 * Objects
 * - dsv4_engine: one model in memory, on one or several devices.
 * - dsv4_session: one sequence of tokens and its KV cache, on an engine.
 * - dsv4_tokenizer, dsv4_parser: work without an engine.
 * Every object has an _open and a _close function; _close accepts NULL. A session keeps its engine
 * alive, so handles may be closed in any order.
 *
 * Threads
 * - Functions that take a pointer to a const handle may run on several threads at once.
 * - Functions that take a non-const handle need exclusive use of it. Sessions and parsers detect a
 *   second caller and return BUSY.
 * - Exceptions: functions that open a session, dsv4_engine_step, dsv4_engine_suspend and
 *   dsv4_engine_resume may run concurrently on one engine.
 *   dsv4_session_set_stopped may be called by any thread at any time.
 * - A handle may move between threads. Calls on different handles need no locking by the host.
 * - Steps of several sessions of one engine that run at the same time are computed as one batch.
 * - The library's only threads are the workers of an engine. They end when the engine is freed.
 *
 * Callbacks
 * - A callback runs on the thread of the call that received it. Exception: the log callback runs on
 *   any thread that logs. It must not compute on an engine (BUSY).
 * - A callback must not call functions on its own session, except
 *   dsv4_session_set_stopped.
 * - A callback must return: no exception and no longjmp may leave it.
 *
 * Lifetimes
 * - Memory that the library allocates is freed by the library only.
 * - Pointers that a function returns are views. Each function says how long its views live.
 * - Arguments are read during the call only.
 * - Views of an engine end when its handle is closed, even if a session keeps the engine alive.
 *
 * Errors
 * - Every function that can fail returns a dsv4_status (0 = OK) and fills the optional last
 *   argument with an error object that the caller owns: see <dsv4/error.h>.
 * - A failed call changes nothing unless its comment says otherwise.
 * - Unknown options and values are errors. None is ignored.
 * - dsv4_engine_get_info and dsv4_sampling_init report the settings in effect.
 *
 * Stack
 * Functions of <dsv4/chat.h>, <dsv4/grammar.h>, <dsv4/parser.h> and <dsv4/tokenizer.h> need at most
 * 128 KiB of the calling thread's stack, for JSON of any depth.
 *
 * Process state
 * The library never prints, exits, installs signal handlers or throws. It does not read the
 * environment or the locale. It reads the working directory only to resolve relative paths.
 *
 * Lost devices
 * DEVICE_LOST means that a GPU, or another process of a group, has failed. No token of the failed
 * step is delivered, and every later call that computes on the engine fails too, until
 * dsv4_engine_resume has loaded the model again. Sessions keep their tokens and continue with the
 * same ones. After some faults (an illegal address, a trap) CUDA does not let the process use that
 * GPU again: resuming returns DEVICE_LOST. Only another process can use it then. An engine of a
 * group of processes cannot be resumed: close it, and open the group again.
 *
 * Determinism
 * The same build, device, model, options, sampling parameters and seed give the same tokens, bit
 * for bit. These change nothing:
 * - other sessions, batching, and the number of threads;
 * - how a prompt is split into chunks;
 * - tokens reused from the prefix cache, a fork, a rewind or a saved session;
 * - drafts (speculative decoding).
 * These may change the tokens:
 * - another build or compiler;
 * - another backend, device model or instruction set;
 * - other numerics, or another cache format (packed and bf16 give the same bits).
 * A cancelled or failed call changes no later token.
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
