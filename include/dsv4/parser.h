/* SPDX-License-Identifier: Apache-2.0
 *
 * A completion taken apart while it streams: reasoning, content and tool calls as events, whatever
 * the pieces it arrives in. Works without an engine. What the published parser refuses (see
 * dsv4_chat_parse for a whole completion) is delivered all the same, with an event that says what
 * is wrong. Some things that models leave out are taken as meant:
 * - The end of the reasoning before tool calls, when no `</think>` follows them. Where one follows,
 *   they were a quotation, and are reasoning.
 * - The line breaks before tool calls.
 * - The markers around tool calls, when the calls begin a line and nothing follows them but the end
 *   of the completion, or the marker that ends tool calls.
 * Until that is decided such calls are held back, at most 1.1 MiB; more are taken as calls.
 */
#ifndef DSV4_PARSER_H_
#define DSV4_PARSER_H_

#include <dsv4/chat.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_parser dsv4_parser;

/* What a parser has to know of the prompt. */
typedef struct dsv4_parser_options {
  uint32_t struct_size;
  dsv4_thinking_mode thinking; /* as the prompt was rendered */
  /* Tool calls get this and their number as ids; NUL-terminated UTF-8. NULL: "call_". */
  const char* id_prefix;
} dsv4_parser_options;
#define DSV4_PARSER_OPTIONS_INIT \
  { sizeof(dsv4_parser_options), 0, NULL }

typedef int32_t dsv4_parser_event_type;
#define DSV4_PARSER_REASONING ((dsv4_parser_event_type)1)       /* text */
#define DSV4_PARSER_TEXT ((dsv4_parser_event_type)2)            /* text: content of the message */
#define DSV4_PARSER_TOOL_CALL_START ((dsv4_parser_event_type)3) /* call, id, text: tool's name */
#define DSV4_PARSER_TOOL_CALL_ARGUMENTS ((dsv4_parser_event_type)4) /* call, text, repaired */
#define DSV4_PARSER_TOOL_CALL_END ((dsv4_parser_event_type)5)       /* call is whole; repaired */
#define DSV4_PARSER_MALFORMED ((dsv4_parser_event_type)6)           /* reason, call, text */
#define DSV4_PARSER_END ((dsv4_parser_event_type)7) /* unfinished, stopped, call, text */

/* Texts are UTF-8 of whole characters, counted, not NUL-terminated; never NULL. */
typedef struct dsv4_parser_event {
  uint32_t struct_size;
  dsv4_parser_event_type type;
  /* Number of the tool call within the completion, from 0. Of MALFORMED and END: the call that
   * breaks off here and gets no TOOL_CALL_END. -1 when there is none. */
  int32_t call;
  /* The arguments belong to (TOOL_CALL_END: the call has) a value that was announced as JSON and is
   * none, or is longer than 1 MiB: it is delivered as a JSON string. */
  int32_t repaired;
  int32_t unfinished; /* END: the completion ends within tool markup */
  int32_t stopped;    /* END: the end-of-sentence marker was seen */
  /* TOOL_CALL_ARGUMENTS: a piece of JSON; the pieces of one call, joined, are one JSON object,
   * whatever becomes of the call. MALFORMED: a control marker that had no place there and is not
   * delivered otherwise; empty for tool markup, which follows as TEXT, or as REASONING within the
   * reasoning, and of which no byte came before. END: tool markup that the end cut off and that is
   * not delivered otherwise; it is no part of a value either. */
  const char* text;
  uint64_t text_length;
  const char* id; /* TOOL_CALL_START */
  uint64_t id_length;
  const char* reason; /* MALFORMED: what is wrong, in a few words */
  uint64_t reason_length;
} dsv4_parser_event;
#define DSV4_PARSER_EVENT_INIT \
  { sizeof(dsv4_parser_event), 0, 0, 0, 0, 0, NULL, 0, NULL, 0, NULL, 0 }

/* Receives one event. It and what it points to live until the callback returns. */
typedef void (*dsv4_parser_event_fn)(void* user, const dsv4_parser_event* event);

/* Opens a parser for one completion. `options` may be NULL. On success *parser is owned by the
 * caller. Errors: INVALID_ARGUMENT. */
DSV4_API dsv4_status dsv4_parser_open(const dsv4_parser_options* options, dsv4_parser** parser,
                                      dsv4_error** error) DSV4_NOEXCEPT;

/* Accepts NULL. */
DSV4_API void dsv4_parser_close(dsv4_parser* parser) DSV4_NOEXCEPT;

/* Takes the next `length` bytes of what follows the prompt, the texts of control tokens among them,
 * cut anywhere; calls `callback` for what they decide. A part of a marker is held back until it is
 * decided (outside of tool markup at most 32 bytes). A marker that begins another turn (of a user,
 * the assistant or a reminder) is MALFORMED and ends this one: what follows is TEXT after a further
 * MALFORMED, as after the end-of-sentence marker; in a value it is text. Bytes that are not UTF-8
 * become U+FFFD. The callback must not use the parser (BUSY). Errors: INVALID_ARGUMENT, BUSY; the
 * parser stays as it was. OUT_OF_HOST_MEMORY leaves it fit for closing only. */
DSV4_API dsv4_status dsv4_parser_feed(dsv4_parser* parser, const char* bytes, size_t length,
                                      dsv4_parser_event_fn callback, void* user,
                                      dsv4_error** error) DSV4_NOEXCEPT;

/* Takes the tokens of a completion instead, as they were sampled: dsv4_parser_feed of their texts,
 * of which one may end within a character. Errors also: INVALID_ARGUMENT for an id without a token
 * (names it and its place). */
DSV4_API dsv4_status dsv4_parser_feed_tokens(dsv4_parser* parser, const dsv4_tokenizer* tokenizer,
                                             const int32_t* ids, size_t count,
                                             dsv4_parser_event_fn callback, void* user,
                                             dsv4_error** error) DSV4_NOEXCEPT;

/* Delivers what is held and END. The parser is then as new, for another completion. Errors as in
 * dsv4_parser_feed. */
DSV4_API dsv4_status dsv4_parser_finish(dsv4_parser* parser, dsv4_parser_event_fn callback,
                                        void* user, dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_PARSER_H_ */
