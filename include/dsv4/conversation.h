/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions on messages: a session that keeps the messages of a conversation, renders them, and
 * delivers the assistant's turns as parser events (<dsv4/parser.h>).
 *
 * A loop of turns:
 *   1. Append the user's message or the tools' results (or open the session with them).
 *   2. Step until the finish is not DSV4_FINISH_NONE.
 *   3. Run the tools that were called, if any. Repeat from 1.
 *
 * Tokens. Assistant turns keep the tokens that were sampled. All other messages are rendered by
 * dsv4_chat_render_messages. Where the format drops the reasoning of an earlier turn, only the
 * tokens of the reasoning are removed. A new turn therefore reuses the KV rows of everything before
 * its first change; dsv4_session_get_stats reports how many tokens were reused.
 *
 * Other functions. Functions of <dsv4/session.h> that close, fork, prefill, read and configure a
 * session work on these sessions too. dsv4_session_sync, _rewind and _step, and dsv4_engine_step,
 * change the tokens but not the messages. dsv4_session_step_events then returns INVALID_ARGUMENT
 * until a function of this header changes the messages and so renders them again. Functions of this
 * header return INVALID_ARGUMENT for other sessions.
 *
 * Numbering. Messages are numbered from the beginning of the conversation and include the
 * assistant's turns. They are given as structs or as JSON in the form of dsv4_chat_render_json. In
 * errors about an argument, messages[0] is the first message of that argument.
 */
#ifndef DSV4_CONVERSATION_H_
#define DSV4_CONVERSATION_H_

#include <dsv4/parser.h>
#include <dsv4/session.h>

DSV4_BEGIN_DECLS

/* Opens a session on `messages[0..count)`. `count` may be 0. `session_options` and `options` may be
 * NULL. Errors: those of dsv4_session_open, dsv4_chat_render_messages and dsv4_session_sync;
 * INVALID_ARGUMENT for a context in `options`; NOT_FOUND if the model has no tokenizer. */
DSV4_API dsv4_status dsv4_session_open_messages(dsv4_engine* engine,
                                                const dsv4_session_options* session_options,
                                                const dsv4_message* const* messages, size_t count,
                                                const dsv4_chat_options* options,
                                                dsv4_session** session,
                                                dsv4_error** error) DSV4_NOEXCEPT;

/* dsv4_session_open_messages with `length` bytes of JSON, an array of messages. */
DSV4_API dsv4_status dsv4_session_open_json(dsv4_engine* engine,
                                            const dsv4_session_options* session_options,
                                            const char* messages, size_t length,
                                            const dsv4_chat_options* options,
                                            dsv4_session** session,
                                            dsv4_error** error) DSV4_NOEXCEPT;

/* Appends messages, for example a user's message or tool results. Computes nothing. First ends a
 * turn that is being generated, as dsv4_session_end_turn without a callback does; the turn stays
 * ended if the call then fails. A failed call changes nothing else. Errors: INVALID_ARGUMENT if
 * `count` is 0; those of dsv4_session_open_messages. */
DSV4_API dsv4_status dsv4_session_append_messages(dsv4_session* session,
                                                  const dsv4_message* const* messages, size_t count,
                                                  dsv4_error** error) DSV4_NOEXCEPT;

/* dsv4_session_append_messages with `length` bytes of JSON, an array of messages. */
DSV4_API dsv4_status dsv4_session_append_json(dsv4_session* session, const char* messages,
                                              size_t length, dsv4_error** error) DSV4_NOEXCEPT;

/* Computes the pending tokens and samples one token of the assistant's turn.
 * - callback: receives the events that the token completes, often none. With the last token of the
 *   turn (result->finish is not DSV4_FINISH_NONE) it also receives held-back text, then END. It
 *   must not use the session (BUSY).
 * - result: may be NULL. Its text is the token's text, including markup.
 * - A turn that calls tools finishes with DSV4_FINISH_TOOL_CALL instead of STOP if all its calls
 *   are complete.
 * - A control token that begins another turn ends this one with MALFORMED and DSV4_FINISH_STOP. It
 *   is not part of the message.
 * - The id of a tool call is "call_M_N": call N of the assistant's message M.
 * Errors: those of dsv4_session_step, after which the turn can continue; INVALID_ARGUMENT if the
 * last message is not followed by an assistant's turn (it is the assistant's own, or a system
 * message). After OUT_OF_HOST_MEMORY the session can only be closed. */
DSV4_API dsv4_status dsv4_session_step_events(dsv4_session* session, dsv4_parser_event_fn callback,
                                              void* user, dsv4_step_result* result,
                                              dsv4_error** error) DSV4_NOEXCEPT;

/* Steps several sessions in one pass and delivers the events of each, for hosts with one thread.
 * Sessions on messages step as in dsv4_session_step_events, others as in dsv4_session_step.
 * - callback: receives the events of each session after the pass, in the order of the list, with
 *   users[i] for sessions[i]. It must not use any of the sessions (BUSY).
 * - users: [count] or NULL. Entries may be NULL.
 * - Other arguments: as in dsv4_engine_step. A failed session does not affect the others. A session
 *   whose last message is not followed by an assistant's turn fails in this way.
 * Errors of the call itself: those of dsv4_engine_step; INVALID_ARGUMENT if `callback` is NULL. */
DSV4_API dsv4_status dsv4_engine_step_events(dsv4_engine* engine, dsv4_session* const* sessions,
                                             size_t count, dsv4_parser_event_fn callback,
                                             void* const* users, dsv4_step_result* const* results,
                                             dsv4_status* statuses, dsv4_error** errors,
                                             dsv4_error** error) DSV4_NOEXCEPT;

/* Ends the assistant's turn early, if one is being generated. `callback` (may be NULL) receives
 * held-back text, then END. The message keeps what was delivered, except an incomplete tool call.
 * If the reasoning is still open, the next prompt closes it. */
DSV4_API dsv4_status dsv4_session_end_turn(dsv4_session* session, dsv4_parser_event_fn callback,
                                           void* user, dsv4_error** error) DSV4_NOEXCEPT;

/* The number of messages. A turn that is being generated counts once it has ended. Threads: as
 * dsv4_session_get_tokens. */
DSV4_API dsv4_status dsv4_session_get_message_count(const dsv4_session* session, size_t* count,
                                                    dsv4_error** error) DSV4_NOEXCEPT;

/* Keeps only the first `count` messages, for example to regenerate an answer. Ends a running turn
 * as dsv4_session_append_messages does. Errors: those of dsv4_session_append_messages;
 * INVALID_ARGUMENT if there are fewer messages. */
DSV4_API dsv4_status dsv4_session_truncate_messages(dsv4_session* session, size_t count,
                                                    dsv4_error** error) DSV4_NOEXCEPT;

/* Replaces `count` messages from number `first` on by `messages[0..message_count)`, to edit, insert
 * or remove messages. Either count may be 0. Assistant turns that remain keep the tokens that were
 * sampled. Ends a running turn as dsv4_session_append_messages does. Errors: those of
 * dsv4_session_append_messages; INVALID_ARGUMENT if there are fewer messages. */
DSV4_API dsv4_status dsv4_session_replace_messages(dsv4_session* session, size_t first,
                                                   size_t count,
                                                   const dsv4_message* const* messages,
                                                   size_t message_count,
                                                   dsv4_error** error) DSV4_NOEXCEPT;

/* dsv4_session_replace_messages with `length` bytes of JSON, an array of messages. */
DSV4_API dsv4_status dsv4_session_replace_json(dsv4_session* session, size_t first, size_t count,
                                               const char* messages, size_t length,
                                               dsv4_error** error) DSV4_NOEXCEPT;

/* Returns up to `count` messages from number `first` on, as a JSON array that
 * dsv4_session_open_json accepts. A turn that is being generated is not included. Writes up to
 * `capacity` bytes to `json`, without a terminator, and the full length to *needed. Errors:
 * INVALID_ARGUMENT if `first` is beyond the end. Threads: as dsv4_session_get_tokens. */
DSV4_API dsv4_status dsv4_session_get_messages_json(const dsv4_session* session, size_t first,
                                                    size_t count, char* json, size_t capacity,
                                                    size_t* needed,
                                                    dsv4_error** error) DSV4_NOEXCEPT;

/* Changes the options and renders the whole conversation again. Ends a running turn as
 * dsv4_session_append_messages does. Errors: those of dsv4_session_append_messages. */
DSV4_API dsv4_status dsv4_session_set_chat_options(dsv4_session* session,
                                                   const dsv4_chat_options* options,
                                                   dsv4_error** error) DSV4_NOEXCEPT;

/* Returns the assistant's last message, complete or not, as JSON in the form of dsv4_chat_parse,
 * with the ids of tool calls. A tool call is included once it is complete. Writes up to `capacity`
 * bytes to `json`, without a terminator, and the full length to *needed. Errors: NOT_FOUND if the
 * assistant has no message yet. Threads: as dsv4_session_get_tokens. */
DSV4_API dsv4_status dsv4_session_get_reply_json(const dsv4_session* session, char* json,
                                                 size_t capacity, size_t* needed,
                                                 dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_CONVERSATION_H_ */
