/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions on messages: a session that knows the messages of its conversation, renders them, and
 * delivers the assistant's turns as events (those of <dsv4/parser.h>).
 *
 * The assistant's turns stay the tokens that were sampled; all other tokens are those of
 * dsv4_chat_render_messages. Where the format drops the reasoning of a turn, its tokens leave the
 * timeline, and those of the answer stay. So the key/value rows of all that a new turn does not
 * change are kept; dsv4_session_get_stats tells how many tokens that were.
 *
 * A loop of turns: append (or open with) what the user says or the tools found, step until the
 * step's finish is not DSV4_FINISH_NONE, look at the calls, append again.
 *
 * Such a session is closed, prefilled, read and given sampling parameters by the functions of
 * <dsv4/session.h>. dsv4_session_sync, _rewind and _step, and dsv4_engine_step, would pull its
 * timeline away from its messages: dsv4_session_step_events then returns INVALID_ARGUMENT until the
 * messages are rendered again, as each function here that changes them does. On other sessions the
 * functions here return INVALID_ARGUMENT.
 *
 * Messages are numbered from the beginning of the conversation, the assistant's turns among them.
 * They come as structs or as JSON in the form of dsv4_chat_render_json; errors in the structs or
 * the JSON themselves count from the first one given.
 */
#ifndef DSV4_CONVERSATION_H_
#define DSV4_CONVERSATION_H_

#include <dsv4/parser.h>
#include <dsv4/session.h>

DSV4_BEGIN_DECLS

/* Opens a session on `messages[0..count)`, perhaps none. `session_options` and `options` may be
 * NULL, for the defaults; a context in the options is INVALID_ARGUMENT. Errors: those of
 * dsv4_session_open, dsv4_chat_render_messages and dsv4_session_sync; NOT_FOUND for a model without
 * a tokenizer. */
DSV4_API dsv4_status dsv4_session_open_messages(dsv4_engine* engine,
                                                const dsv4_session_options* session_options,
                                                const dsv4_message* const* messages, size_t count,
                                                const dsv4_chat_options* options,
                                                dsv4_session** session,
                                                dsv4_error** error) DSV4_NOEXCEPT;

/* The same with `length` bytes of JSON. */
DSV4_API dsv4_status dsv4_session_open_json(dsv4_engine* engine,
                                            const dsv4_session_options* session_options,
                                            const char* messages, size_t length,
                                            const dsv4_chat_options* options,
                                            dsv4_session** session,
                                            dsv4_error** error) DSV4_NOEXCEPT;

/* Appends what comes after the assistant's last turn: a user's message, results of tools, ...
 * Nothing is computed yet. A turn that is being generated ends first, as by dsv4_session_end_turn
 * without a callback, also when this fails; apart from that a failed call changes nothing. Errors:
 * INVALID_ARGUMENT for no messages, and those of dsv4_session_open_messages. */
DSV4_API dsv4_status dsv4_session_append_messages(dsv4_session* session,
                                                  const dsv4_message* const* messages, size_t count,
                                                  dsv4_error** error) DSV4_NOEXCEPT;

/* The same with `length` bytes of JSON, an array. */
DSV4_API dsv4_status dsv4_session_append_json(dsv4_session* session, const char* messages,
                                              size_t length, dsv4_error** error) DSV4_NOEXCEPT;

/* Computes what is pending and samples one token of the assistant's turn. `callback` gets the
 * events that the token decides, often none; with the last token of the turn, for which
 * result->finish is not DSV4_FINISH_NONE, also what was held back, and END; a turn that calls tools
 * finishes as DSV4_FINISH_TOOL_CALL instead of STOP if all its calls are whole. A control token
 * that begins another turn ends this one with MALFORMED and DSV4_FINISH_STOP; it is no part of the
 * message. Ids of tool calls are
 * "call_M_N", of the assistant's message M and its call N. `result` may be NULL; its text is that
 * of the token, markup and all. The callback must not use the session (BUSY).
 * Errors: those of dsv4_session_step, after which the turn can go on; INVALID_ARGUMENT when the
 * last message does not give the assistant its turn: it is the assistant's own, or a system's.
 * OUT_OF_HOST_MEMORY leaves the session fit for closing only. */
DSV4_API dsv4_status dsv4_session_step_events(dsv4_session* session, dsv4_parser_event_fn callback,
                                              void* user, dsv4_step_result* result,
                                              dsv4_error** error) DSV4_NOEXCEPT;

/* Steps `sessions[0..count)` in one pass, as dsv4_engine_step does, for hosts with one thread: of
 * those on messages as dsv4_session_step_events, of others as dsv4_session_step. After the pass
 * `callback` gets the events of each session in the order of the list, with users[i] for
 * sessions[i]; `users` may be NULL, and so may be each of them. The callback must not use any of
 * the sessions (BUSY). A session's failure is its own, also that the assistant has no turn. Errors
 * and the other arguments as in dsv4_engine_step; INVALID_ARGUMENT also without a callback. */
DSV4_API dsv4_status dsv4_engine_step_events(dsv4_engine* engine, dsv4_session* const* sessions,
                                             size_t count, dsv4_parser_event_fn callback,
                                             void* const* users, dsv4_step_result* const* results,
                                             dsv4_status* statuses, dsv4_error** errors,
                                             dsv4_error** error) DSV4_NOEXCEPT;

/* Ends the assistant's turn where it is, when one is being generated: `callback` (may be NULL) gets
 * what was held back, and END. The message keeps all that was delivered but a call that is not
 * whole; the next prompt closes its reasoning. */
DSV4_API dsv4_status dsv4_session_end_turn(dsv4_session* session, dsv4_parser_event_fn callback,
                                           void* user, dsv4_error** error) DSV4_NOEXCEPT;

/* How many messages the conversation has; a turn of the assistant that is being generated is one
 * when it has ended. May be called by several threads, as dsv4_session_tokens. */
DSV4_API dsv4_status dsv4_session_message_count(const dsv4_session* session, size_t* count,
                                                dsv4_error** error) DSV4_NOEXCEPT;

/* Keeps the first `count` messages alone: to answer anew, or to take questions back. Ends a turn
 * and fails as dsv4_session_append_messages; INVALID_ARGUMENT when there are fewer. */
DSV4_API dsv4_status dsv4_session_truncate_messages(dsv4_session* session, size_t count,
                                                    dsv4_error** error) DSV4_NOEXCEPT;

/* Puts `messages[0..message_count)` in the place of the `count` messages from `first` on: to edit a
 * message, to insert, or to remove; either count may be 0. Turns of the assistant that stay keep
 * the tokens that were sampled. Ends a turn and fails as dsv4_session_append_messages;
 * INVALID_ARGUMENT when there are fewer messages. */
DSV4_API dsv4_status dsv4_session_replace_messages(dsv4_session* session, size_t first,
                                                   size_t count,
                                                   const dsv4_message* const* messages,
                                                   size_t message_count,
                                                   dsv4_error** error) DSV4_NOEXCEPT;

/* The same with `length` bytes of JSON, an array. */
DSV4_API dsv4_status dsv4_session_replace_json(dsv4_session* session, size_t first, size_t count,
                                               const char* messages, size_t length,
                                               dsv4_error** error) DSV4_NOEXCEPT;

/* Lists up to `count` messages from `first` on as a JSON array that dsv4_session_open_json takes; a
 * turn of the assistant that is being generated is not among them. Writes up to `capacity` bytes to
 * `json`, without a terminator, and the number needed to *needed. INVALID_ARGUMENT for `first`
 * beyond the end. Threads as dsv4_session_tokens. */
DSV4_API dsv4_status dsv4_session_messages_json(const dsv4_session* session, size_t first,
                                                size_t count, char* json, size_t capacity,
                                                size_t* needed, dsv4_error** error) DSV4_NOEXCEPT;

/* Renders the conversation by other options from here on, its earlier turns included. Ends a turn
 * and fails as dsv4_session_append_messages. */
DSV4_API dsv4_status dsv4_session_set_chat_options(dsv4_session* session,
                                                   const dsv4_chat_options* options,
                                                   dsv4_error** error) DSV4_NOEXCEPT;

/* The assistant's last message as far as it goes, as JSON like that of dsv4_chat_parse, its calls
 * with their ids. A call is among them from its TOOL_CALL_END on; one that broke off never is.
 * Writes up to `capacity` bytes to `json`, without a terminator, and the number needed to *needed.
 * NOT_FOUND before the first one. Threads as dsv4_session_tokens. */
DSV4_API dsv4_status dsv4_session_reply_json(const dsv4_session* session, char* json,
                                             size_t capacity, size_t* needed,
                                             dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_CONVERSATION_H_ */
