/* SPDX-License-Identifier: Apache-2.0
 *
 * A streaming parser of completions: delivers reasoning, content and tool calls as events. Needs no
 * engine. The events do not depend on how the completion is split into pieces.
 *
 * Malformed output is delivered too, with an event that says what is wrong. The parser recovers
 * what models sometimes leave out:
 * - A missing `</think>` before tool calls. If a `</think>` follows the calls, they count as quoted
 *   text and are delivered as reasoning.
 * - Missing line breaks before tool calls, and between them and their parameters.
 * - Missing markers around tool calls, if the calls begin a line and only the end of the completion
 *   or the closing marker follows.
 * Calls are held back until this is decided, up to 1.1 MiB. Longer ones are delivered as calls.
 */
#ifndef DSV4_PARSER_H_
#define DSV4_PARSER_H_

#include <dsv4/chat.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_parser dsv4_parser;

/* Options of dsv4_parser_open. */
typedef struct dsv4_parser_options {
  uint32_t struct_size;
  dsv4_thinking_mode thinking; /* the mode that the prompt was rendered with */
  /* The id of a tool call is this prefix and its number. NUL-terminated UTF-8. NULL: "call_". */
  const char* id_prefix;
} dsv4_parser_options;
#define DSV4_PARSER_OPTIONS_INIT \
  { sizeof(dsv4_parser_options), 0, NULL }

/* Event types, and the fields of dsv4_parser_event that each one sets. */
typedef int32_t dsv4_parser_event_type;
#define DSV4_PARSER_REASONING ((dsv4_parser_event_type)1)       /* text */
#define DSV4_PARSER_TEXT ((dsv4_parser_event_type)2)            /* text: content of the message */
#define DSV4_PARSER_TOOL_CALL_START ((dsv4_parser_event_type)3) /* call, id, text: tool's name */
#define DSV4_PARSER_TOOL_CALL_ARGUMENTS ((dsv4_parser_event_type)4) /* call, text, repaired */
#define DSV4_PARSER_TOOL_CALL_END ((dsv4_parser_event_type)5)       /* call, repaired: complete */
#define DSV4_PARSER_MALFORMED ((dsv4_parser_event_type)6)           /* reason, call, text */
#define DSV4_PARSER_END ((dsv4_parser_event_type)7) /* incomplete, stopped, call, text */

/* One event. Texts are whole UTF-8 characters, not NUL-terminated and never NULL. */
typedef struct dsv4_parser_event {
  uint32_t struct_size;
  dsv4_parser_event_type type;
  /* The number of the tool call in the completion, from 0. In MALFORMED and END: the call that ends
   * here incomplete, without a TOOL_CALL_END. -1 if there is none. */
  int32_t call;
  /* 1: the markup marks a value as JSON, but it is not JSON, or is longer than 1 MiB. It is
   * delivered as a JSON string. In TOOL_CALL_ARGUMENTS: this piece belongs to such a value. In
   * TOOL_CALL_END: the call has such a value. */
  int32_t repaired;
  int32_t incomplete; /* END: the completion ends inside tool markup */
  int32_t stopped;    /* END: the end-of-sentence marker was seen */
  /* - REASONING, TEXT: the next piece of it.
   * - TOOL_CALL_START: the tool's name.
   * - TOOL_CALL_ARGUMENTS: a piece of JSON. The pieces of one call join to one JSON object, also if
   *   the call stays incomplete.
   * - MALFORMED: an unexpected control marker, which no other event delivers. Empty for malformed
   *   tool markup, which follows as TEXT (inside the reasoning: as REASONING).
   * - END: tool markup that the end of the completion cut off. No other event delivers it. */
  const char* text;
  uint64_t text_length;
  const char* id; /* TOOL_CALL_START */
  uint64_t id_length;
  const char* reason; /* MALFORMED: what is wrong */
  uint64_t reason_length;
} dsv4_parser_event;
#define DSV4_PARSER_EVENT_INIT \
  { sizeof(dsv4_parser_event), 0, 0, 0, 0, 0, NULL, 0, NULL, 0, NULL, 0 }

/* Receives one event. The event and its texts live until the callback returns. */
typedef void (*dsv4_parser_event_fn)(void* user, const dsv4_parser_event* event);

/* Opens a parser for one completion. `options` may be NULL. On success the caller owns *parser.
 * Errors: INVALID_ARGUMENT. */
DSV4_API dsv4_status dsv4_parser_open(const dsv4_parser_options* options, dsv4_parser** parser,
                                      dsv4_error** error) DSV4_NOEXCEPT;

/* Closes the parser. Accepts NULL. */
DSV4_API void dsv4_parser_close(dsv4_parser* parser) DSV4_NOEXCEPT;

/* Parses the next `length` bytes of the completion. The completion includes the texts of control
 * tokens (dsv4_tokenizer_get_token_bytes), and may be split at any byte. Calls `callback` for each
 * event that the bytes complete.
 * - A possible beginning of a marker is held back, outside of tool markup at most 32 bytes.
 * - A marker that begins another turn (of a user, the assistant or a reminder) is MALFORMED and
 *   ends the turn. Inside a parameter's value it is text.
 * - Bytes after the end of the turn are reported as MALFORMED and delivered as TEXT.
 * - Invalid UTF-8 becomes U+FFFD.
 * - The callback must not use the parser (BUSY).
 * Errors: INVALID_ARGUMENT and BUSY leave the parser unchanged. After OUT_OF_HOST_MEMORY the parser
 * can only be closed. */
DSV4_API dsv4_status dsv4_parser_feed(dsv4_parser* parser, const char* bytes, size_t length,
                                      dsv4_parser_event_fn callback, void* user,
                                      dsv4_error** error) DSV4_NOEXCEPT;

/* Ends the completion: delivers what was held back, then END. The parser is then ready for another
 * completion. Errors: those of dsv4_parser_feed. */
DSV4_API dsv4_status dsv4_parser_end(dsv4_parser* parser, dsv4_parser_event_fn callback, void* user,
                                     dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_PARSER_H_ */
