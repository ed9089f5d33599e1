/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages to prompts and completions to messages, in the model family's published format, without
 * an engine.
 *
 * A prompt for the model is rendered to ids. Structure comes from control token ids; every text of
 * a message, tool or schema is encoded with all added tokens off, so that none can forge a turn.
 * The text of a prompt (dsv4_chat_render_text, dsv4_chat_render_text_json) is for people and for
 * comparison: it cannot tell a control token from a message that spells one, so tokenizing it lets
 * messages forge turns.
 *
 * A conversation is given as structs (dsv4_chat_render_messages) or as JSON
 * (dsv4_chat_render_json); both can say the same and give the same prompt.
 */
#ifndef DSV4_CHAT_H_
#define DSV4_CHAT_H_

#include <dsv4/tokenizer.h>

DSV4_BEGIN_DECLS

typedef int32_t dsv4_role;
#define DSV4_ROLE_SYSTEM ((dsv4_role)1)
#define DSV4_ROLE_USER ((dsv4_role)2)
#define DSV4_ROLE_ASSISTANT ((dsv4_role)3)
#define DSV4_ROLE_TOOL ((dsv4_role)4) /* the result of a tool call */
#define DSV4_ROLE_LATEST_REMINDER ((dsv4_role)5)
#define DSV4_ROLE_DEVELOPER ((dsv4_role)6)

typedef int32_t dsv4_thinking_mode;
#define DSV4_THINKING_OFF ((dsv4_thinking_mode)0)  /* chat mode: the answer begins at once */
#define DSV4_THINKING_HIGH ((dsv4_thinking_mode)1) /* the model reasons before it answers */
#define DSV4_THINKING_MAX ((dsv4_thinking_mode)2)  /* the prompt also asks for the utmost effort */
#define DSV4_THINKING_LOW ((dsv4_thinking_mode)3)  /* the model reasons; no word about effort */

/* Which of the family's published encoders writes the prompt. They differ in the text that asks for
 * an effort, at the head of the prompt, and in nothing else:
 *
 *            LOW      HIGH                 MAX
 *   PREVIEW  none     none                 "Absolute maximum ..."
 *   0731     none     "Absolute maximum"   "Beyond maximum ..."
 *
 * LOW is what both write when no effort is given. DeepSeek's hosted API takes HIGH then for the
 * models of 0731, which is another prompt; here the effort is always the caller's. Being first, a
 * change of effort leaves no row of an earlier prompt to reuse. */
typedef int32_t dsv4_chat_encoder;
/* The one that the model's folder shows by a file of it: encoding/encoding_dsv4.py,
 * chat_template.jinja or tokenizer_config.json. PREVIEW where none does, and without a tokenizer or
 * an engine that was opened from a folder. dsv4_inspect tells which it is. */
#define DSV4_CHAT_ENCODER_AUTO ((dsv4_chat_encoder)0)
#define DSV4_CHAT_ENCODER_PREVIEW ((dsv4_chat_encoder)1) /* V4-Flash, V4-Pro and their DSpark */
#define DSV4_CHAT_ENCODER_0731 ((dsv4_chat_encoder)2)    /* V4-Flash-0731, V4-Pro-0813 */

/* Structs that come in hold views: the caller's memory, read during the call only. Texts are UTF-8
 * with their length in bytes; NULL with length 0 is the empty text. */

/* A call of a tool that the assistant has made. */
typedef struct dsv4_tool_call {
  uint32_t struct_size;
  int32_t reserved;
  const char* id; /* by which a result names its call; may be empty */
  uint64_t id_length;
  const char* name; /* not NULL */
  uint64_t name_length;
  /* JSON; not NULL. The members of an object are the parameters; text that is no JSON is the one
   * parameter "arguments". Read as Python reads JSON. */
  const char* arguments;
  uint64_t arguments_length;
} dsv4_tool_call;
#define DSV4_TOOL_CALL_INIT \
  { sizeof(dsv4_tool_call), 0, NULL, 0, NULL, 0, NULL, 0 }

/* One message. A field that means nothing in the message's role must be 0. */
typedef struct dsv4_message {
  uint32_t struct_size;
  dsv4_role role;
  /* Of several parts: joined by an empty line. Of a developer's message not empty. */
  const char* content;
  uint64_t content_length;
  const char* reasoning; /* assistant. Kept where the format keeps it. */
  uint64_t reasoning_length;
  const dsv4_tool_call* const* tool_calls; /* assistant */
  uint64_t tool_call_count;
  const char* tool_call_id; /* tool: the call that it answers. Results take the order of calls. */
  uint64_t tool_call_id_length;
  /* System, developer: the tools, a JSON array in the form of OpenAI's chat API. Also of assistant
   * and latest_reminder, where they are not written, but keep earlier reasoning as any tools do. */
  const char* tools;
  uint64_t tools_length;
  const char* response_format; /* system, developer: a JSON schema of the answer */
  uint64_t response_format_length;
  /* Any role but tool: a quick task that the model is to do after this message: "action", "query",
   * "authority", "domain", "title" or "read_url". NULL for none. */
  const char* task;
  uint64_t task_length;
  int32_t wo_eos; /* assistant; 1: without the end-of-sentence token */
  int32_t reserved;
} dsv4_message;
#define DSV4_MESSAGE_INIT \
  { sizeof(dsv4_message), 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, 0, 0 }

/* Renders the conversation `messages[0..count)` up to where the assistant is to speak (or to the
 * end of its turn when the last message is the assistant's). Tokens as in dsv4_tokenizer_encode.
 * Errors: INVALID_ARGUMENT (names the message and field; no message), CORRUPT (`tools` or
 * `response_format` is not JSON; names the line), UNSUPPORTED (JSON nested too deep), NOT_FOUND
 * (the tokenizer lacks a control token; names it). */
DSV4_API dsv4_status dsv4_chat_render(const dsv4_tokenizer* tokenizer,
                                      const dsv4_message* const* messages, size_t count,
                                      dsv4_thinking_mode thinking, int32_t* ids, size_t capacity,
                                      size_t* needed, dsv4_error** error) DSV4_NOEXCEPT;

/* How a conversation is rendered. 0 is the published default. */
typedef struct dsv4_chat_options {
  uint32_t struct_size;
  dsv4_thinking_mode thinking;
  /* 1: the reasoning of earlier turns and earlier developer messages stay. 0: when thinking, those
   * before the last user turn (tool results are part of one) are left out, unless any message
   * brings tools. */
  int32_t keep_reasoning;
  int32_t omit_begin; /* 1: no begin-of-sentence token before a prompt without a context */
  /* Messages that were rendered already: the result continues their prompt. As JSON, or as structs;
   * NULL for none. */
  const char* context;
  uint64_t context_length;
  const dsv4_message* const* context_messages;
  uint64_t context_message_count;
  dsv4_chat_encoder encoder;
  int32_t reserved;
} dsv4_chat_options;
#define DSV4_CHAT_OPTIONS_INIT \
  { sizeof(dsv4_chat_options), 0, 0, 0, NULL, 0, NULL, 0, 0, 0 }

/* dsv4_chat_render with options; NULL for the defaults. No message is a prompt too. */
DSV4_API dsv4_status dsv4_chat_render_messages(const dsv4_tokenizer* tokenizer,
                                               const dsv4_message* const* messages, size_t count,
                                               const dsv4_chat_options* options, int32_t* ids,
                                               size_t capacity, size_t* needed,
                                               dsv4_error** error) DSV4_NOEXCEPT;

/* The same prompt as UTF-8, as published; not to be tokenized. Writes up to `capacity` bytes to
 * `text`, without a terminator, and the number needed to *needed. Errors as above. */
DSV4_API dsv4_status dsv4_chat_render_text(const dsv4_message* const* messages, size_t count,
                                           const dsv4_chat_options* options, char* text,
                                           size_t capacity, size_t* needed,
                                           dsv4_error** error) DSV4_NOEXCEPT;

/* Renders `length` bytes of JSON, an array of messages in the form of OpenAI's chat API, to ids as
 * dsv4_chat_render does. Keys of a message:
 * - role: system, user, assistant, tool, latest_reminder or developer.
 * - content: a string, null (empty; not of a user), or a list of parts, whose texts are joined by
 *   an empty line: of type text, input_text or output_text, or without a type. Of a user or tool
 *   another part without a text becomes "[Unsupported TYPE]", as published.
 * - reasoning_content, tool_calls (their arguments an object, or its JSON in a string), and prefix
 *   on an assistant's message. A prefix of true on the last message leaves out its end token, so
 *   that the model goes on from it; sessions on messages give no turn after it.
 * - tool_call_id on a tool's; tools and response_format on a system's or developer's.
 * - The family's task, and wo_eos (an assistant's turn without its end token).
 * A key of these in a role where it means nothing is an error; other keys are ignored. An unpaired
 * surrogate escape becomes U+FFFD. `options` may be NULL.
 * Errors: CORRUPT (not JSON; names the line), INVALID_ARGUMENT (names the message and field),
 * UNSUPPORTED (another role; nesting too deep), NOT_FOUND (the tokenizer lacks a control token;
 * names it). */
DSV4_API dsv4_status dsv4_chat_render_json(const dsv4_tokenizer* tokenizer, const char* messages,
                                           size_t length, const dsv4_chat_options* options,
                                           int32_t* ids, size_t capacity, size_t* needed,
                                           dsv4_error** error) DSV4_NOEXCEPT;

/* The same prompt as text, written as by dsv4_chat_render_text. Errors as above. */
DSV4_API dsv4_status dsv4_chat_render_text_json(const char* messages, size_t length,
                                                const dsv4_chat_options* options, char* text,
                                                size_t capacity, size_t* needed,
                                                dsv4_error** error) DSV4_NOEXCEPT;

/* Parses a whole completion, the UTF-8 that follows a prompt up to and with the end-of-sentence
 * marker, to the assistant's message as a JSON object {role, content, reasoning_content,
 * tool_calls}, as strictly as the published parser; <dsv4/parser.h> takes what is growing or
 * broken. The JSON is written like the text of a prompt. Errors: CORRUPT (says what is wrong),
 * INVALID_ARGUMENT (not UTF-8). */
DSV4_API dsv4_status dsv4_chat_parse(const char* completion, size_t length,
                                     dsv4_thinking_mode thinking, char* json, size_t capacity,
                                     size_t* needed, dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_CHAT_H_ */
