/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions on messages: the session's tokens are those of a list of messages, and the assistant's
 * turns are delivered as parser events (<dsv4/parser.h>).
 *
 * A loop of turns:
 *   1. Sync the session to all messages of the conversation, the last one a user's or a tool's.
 *   2. Step until the finish is not DSV4_FINISH_NONE.
 *   3. Add the reply to the list (dsv4_session_get_reply_json), then the results of the tools that
 *      were called, or the user's next message. Repeat from 1.
 *
 * The host owns the list. To regenerate, edit or remove messages, it syncs to the list as it should
 * be; the session reuses the KV rows of everything before the first change.
 *
 * Tokens. An assistant's message that equals the one that this session generated keeps the tokens
 * that were sampled, if all messages before it are unchanged; the ids of its tool calls may differ.
 * All other messages are rendered by dsv4_chat_render. Where the format drops the reasoning of an
 * earlier turn, only the tokens of the reasoning are removed.
 *
 * Steps. dsv4_session_step with a callback samples one token of the assistant's turn.
 * - The callback receives the events that the token completes, often none. With the last token of
 *   the turn (result->finish is not DSV4_FINISH_NONE) it also receives held-back text, then END. It
 *   must not use the session (BUSY).
 * - The result's text is the token's text, including markup.
 * - A turn that calls tools finishes with DSV4_FINISH_TOOL_CALL instead of STOP if all its calls
 *   are complete.
 * - A control token that begins another turn ends this one with MALFORMED and DSV4_FINISH_STOP. It
 *   is not part of the message.
 * - If the last message is the assistant's, with "prefix" (in JSON) or wo_eos, it is the beginning
 *   of the turn. The events are those of the rest. The reply is the whole turn, without reasoning.
 * - The id of a tool call is "call_M_N": call N of the assistant's message M, counted from 0. If
 *   calls in the messages have such an id with this M or a higher one, as where earlier messages
 *   were left out, M is one more than the highest.
 * Errors are those of any step, after which the turn can continue, and INVALID_ARGUMENT if the
 * session was not synced to messages, or if the last message is not followed by an assistant's turn
 * (it is a whole one of the assistant, or a system message). After OUT_OF_HOST_MEMORY for the
 * turn's text, the messages must be synced again.
 *
 * Other functions. All functions of <dsv4/session.h> work on these sessions too. dsv4_session_sync,
 * _rewind and a step without a callback change the tokens but not the messages. A step with a
 * callback then returns INVALID_ARGUMENT until messages are synced again.
 */
#ifndef DSV4_CONVERSATION_H_
#define DSV4_CONVERSATION_H_

#include <dsv4/parser.h>
#include <dsv4/session.h>

DSV4_BEGIN_DECLS

/* Sets the session's tokens to those of `messages[0..count)`, all messages of the conversation, up
 * to the point where the assistant's turn begins. `count` may be 0. Computes nothing. First ends a
 * turn that is being generated, as dsv4_session_end_turn without a callback does; the turn stays
 * ended if the call then fails. A failed call changes nothing else.
 * - options: may be NULL. Without a context.
 * - result: may be NULL; as in dsv4_session_sync.
 * Errors: those of dsv4_session_sync; INVALID_ARGUMENT (an invalid message; names the message and
 * field), CORRUPT (`tools` or `response_format` is not JSON; names the line), UNSUPPORTED (JSON
 * nested too deeply), NOT_FOUND (the model has no tokenizer, or lacks a control token). */
DSV4_API dsv4_status dsv4_session_sync_messages(dsv4_session* session,
                                                const dsv4_message* const* messages, size_t count,
                                                const dsv4_chat_options* options,
                                                dsv4_sync_result* result,
                                                dsv4_error** error) DSV4_NOEXCEPT;

/* dsv4_session_sync_messages with `length` bytes of JSON, an array of messages in the form of
 * dsv4_chat_render. Errors: also those of dsv4_chat_render. */
DSV4_API dsv4_status dsv4_session_sync_json(dsv4_session* session, const char* messages,
                                            size_t length, const dsv4_chat_options* options,
                                            dsv4_sync_result* result,
                                            dsv4_error** error) DSV4_NOEXCEPT;

/* Steps several sessions of `engine` in one pass, for hosts with one thread. Sessions on messages
 * step as with a callback of dsv4_session_step, others as without.
 * - sessions: [count] distinct sessions of `engine`.
 * - callback: receives the events of each session on messages after the pass, in the order of the
 *   list, with users[i] for sessions[i]. It must not use any of the sessions (BUSY). May be NULL.
 * - users: [count] or NULL. Entries may be NULL.
 * - results, statuses: [count] what a step would return for each session. A session with a long
 *   pending prompt computes a part of it and returns the token -1 without an error: call again.
 *   Prompts share prefill_chunk_tokens evenly and do not delay sessions that decode.
 * - errors: [count] or NULL. Receives an error object, owned by the caller, for each session that
 *   failed, otherwise NULL. A failed session does not affect the others. A session whose last
 *   message is not followed by an assistant's turn fails in this way.
 *
 * Errors of the call itself, before anything is computed: INVALID_ARGUMENT for a session that is
 * NULL, named twice or of another engine, and for an invalid struct; BUSY as in dsv4_session_step;
 * OUT_OF_HOST_MEMORY. All statuses then have that code, all `errors` are NULL, and the results are
 * unchanged.
 *
 * Threads: may run concurrently with calls on other sessions. */
DSV4_API dsv4_status dsv4_engine_step(dsv4_engine* engine, dsv4_session* const* sessions,
                                      size_t count, dsv4_parser_event_fn callback,
                                      void* const* users, dsv4_step_result* const* results,
                                      dsv4_status* statuses, dsv4_error** errors,
                                      dsv4_error** error) DSV4_NOEXCEPT;

/* Ends the assistant's turn early, if one is being generated. `callback` (may be NULL) receives
 * held-back text, then END. The message keeps what was delivered, except an incomplete tool call.
 * If the reasoning is still open, the next prompt closes it. */
DSV4_API dsv4_status dsv4_session_end_turn(dsv4_session* session, dsv4_parser_event_fn callback,
                                           void* user, dsv4_error** error) DSV4_NOEXCEPT;

/* Returns the assistant's message that was generated since the last sync, complete or not, as a
 * JSON object {role, content, reasoning_content, tool_calls} with the ids of tool calls. A tool
 * call is included once it is complete. Writes up to `capacity` bytes to `json`, without a
 * terminator, and the full length to *needed. Errors: NOT_FOUND if no token was generated since the
 * last sync. Threads: as dsv4_session_get_tokens. */
DSV4_API dsv4_status dsv4_session_get_reply_json(const dsv4_session* session, char* json,
                                                 size_t capacity, size_t* needed,
                                                 dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_CONVERSATION_H_ */
