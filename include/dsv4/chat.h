/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat format of the model family: renders messages to prompts and parses completions to
 * messages. Needs no engine.
 *
 * Prompts are rendered to token ids. Control tokens mark turns and roles. Text of messages, tools
 * and schemas never becomes a control token, so it cannot forge a turn. dsv4_chat_render_text
 * returns the prompt as text, for display and comparison. Do not tokenize that text: it cannot
 * distinguish a control token from a message that spells one.
 *
 * A conversation is given as JSON, or to dsv4_session_sync_messages as structs. Both can express
 * the same conversations.
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
#define DSV4_THINKING_OFF ((dsv4_thinking_mode)0)  /* the model answers at once */
#define DSV4_THINKING_HIGH ((dsv4_thinking_mode)1) /* the model reasons before it answers */
#define DSV4_THINKING_MAX ((dsv4_thinking_mode)2)  /* reasons with the largest effort */
#define DSV4_THINKING_LOW                                                \
  ((dsv4_thinking_mode)3) /* reasons; the prompt does not mention effort \
                           */

/* The published encoder that renders the prompt. The encoders differ only in the instruction about
 * reasoning effort at the head of the prompt:
 *
 *            LOW      HIGH                 MAX
 *   PREVIEW  none     none                 "Absolute maximum ..."
 *   0731     none     "Absolute maximum"   "Beyond maximum ..."
 *
 * Both encoders use LOW if no effort is given. DeepSeek's hosted API uses HIGH for 0731 models in
 * that case, which is a different prompt. This library never chooses: the caller always gives the
 * effort. A change of effort changes the head of the prompt, so no cached row can be reused. */
typedef int32_t dsv4_chat_encoder;
/* Detected from a file in the model folder: encoding/encoding_dsv4.py, chat_template.jinja or
 * tokenizer_config.json. If no file identifies the encoder, it is guessed: 0731 if the folder's
 * name has the release's date (0731, 0813), or if config.json has the keys of a DSpark drafter and
 * the folder's name does not say DSpark; otherwise PREVIEW. dsv4_inspect, dsv4_engine_identity and
 * the log report a guess. PREVIEW in functions that take neither a tokenizer nor an engine. */
#define DSV4_CHAT_ENCODER_AUTO ((dsv4_chat_encoder)0)
#define DSV4_CHAT_ENCODER_PREVIEW ((dsv4_chat_encoder)1) /* V4-Flash, V4-Pro and their DSpark */
#define DSV4_CHAT_ENCODER_0731 ((dsv4_chat_encoder)2)    /* V4-Flash-0731, V4-Pro-0813 */

/* Input structs point to the caller's memory, which is read during the call only. Texts are UTF-8
 * with a length in bytes. NULL with length 0 is the empty text. */

/* A tool call that the assistant made. */
typedef struct dsv4_tool_call {
  uint32_t struct_size;
  int32_t reserved;
  const char* id; /* tool results refer to it; may be empty */
  uint64_t id_length;
  const char* name; /* the tool's name; not NULL */
  uint64_t name_length;
  /* A JSON object whose members are the parameters; not NULL. Parsed by the rules of Python's json
   * module. Text that is not JSON becomes one parameter "arguments". */
  const char* arguments;
  uint64_t arguments_length;
} dsv4_tool_call;
#define DSV4_TOOL_CALL_INIT \
  { sizeof(dsv4_tool_call), 0, NULL, 0, NULL, 0, NULL, 0 }

/* One message. Fields that the role does not use must be 0. */
typedef struct dsv4_message {
  uint32_t struct_size;
  dsv4_role role;
  const char* content; /* developer: must not be empty */
  uint64_t content_length;
  const char* reasoning; /* assistant; rendered where the format keeps reasoning */
  uint64_t reasoning_length;
  const dsv4_tool_call* const* tool_calls; /* assistant */
  uint64_t tool_call_count;
  const char* tool_call_id; /* tool: the id of the call; results are rendered in order of calls */
  uint64_t tool_call_id_length;
  /* system, developer: the available tools, a JSON array in the form of OpenAI's chat API.
   * Assistant and latest_reminder messages accept tools too, but do not render them. If any message
   * has tools, the reasoning of earlier turns is kept. */
  const char* tools;
  uint64_t tools_length;
  const char* response_format; /* system, developer: a JSON schema of the answer */
  uint64_t response_format_length;
  /* Every role except tool: a quick task for the model after this message: "action", "query",
   * "authority", "domain", "title" or "read_url". NULL for none. */
  const char* task;
  uint64_t task_length;
  int32_t wo_eos; /* assistant; 1: omit the end-of-sentence token */
  int32_t reserved;
} dsv4_message;
#define DSV4_MESSAGE_INIT \
  { sizeof(dsv4_message), 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, 0, 0 }

/* How a conversation is rendered. 0 in a field is the published default. */
typedef struct dsv4_chat_options {
  uint32_t struct_size;
  dsv4_thinking_mode thinking;
  /* 0: with thinking on, reasoning and developer messages before the last user turn are dropped,
   * unless a message has tools. Tool results are part of a user turn. 1: all are kept. */
  int32_t keep_reasoning;
  int32_t omit_begin; /* 1: no begin-of-sentence token. With a context there never is one. */
  dsv4_chat_encoder encoder;
  int32_t reserved;
  /* Messages that are already rendered, as JSON; NULL for none. The result continues their
   * prompt. */
  const char* context;
  uint64_t context_length;
} dsv4_chat_options;
#define DSV4_CHAT_OPTIONS_INIT \
  { sizeof(dsv4_chat_options), 0, 0, 0, 0, 0, NULL, 0 }

/* Renders `length` bytes of JSON, an array of messages in the form of OpenAI's chat API, to token
 * ids, up to the point where the assistant's turn begins. If the last message is the assistant's,
 * up to the end of that message.
 * - options: may be NULL.
 * - ids, capacity, needed: as in dsv4_tokenizer_encode.
 * Keys of a message:
 * - role: system, user, assistant, tool, latest_reminder or developer.
 * - content: a string, null (empty; not for a user), or a list of parts. Parts of type text,
 *   input_text or output_text, or without a type, are joined by an empty line. In messages of a
 *   user or tool, another part without a text becomes "[Unsupported TYPE]", as in the published
 *   encoder.
 * - reasoning_content (assistant).
 * - tool_calls (assistant): arguments are an object, or a string with its JSON. An empty string is
 *   no parameter. Of JSON that was cut off, the parameters so far count.
 * - prefix (assistant): true on the last message omits its end token, so that the model continues
 *   the message. Sessions on messages do not accept a turn after it.
 * - tool_call_id (tool).
 * - tools, response_format (system, developer).
 * - task, wo_eos: as in dsv4_message.
 * One of these keys in a message whose role does not use it is an error. Unknown keys are ignored.
 * An unpaired surrogate escape becomes U+FFFD.
 * Errors: CORRUPT (not JSON; names the line), INVALID_ARGUMENT (names the message and field),
 * UNSUPPORTED (another role; nesting too deep), NOT_FOUND (the tokenizer lacks a control token;
 * names it). */
DSV4_API dsv4_status dsv4_chat_render(const dsv4_tokenizer* tokenizer, const char* messages,
                                      size_t length, const dsv4_chat_options* options, int32_t* ids,
                                      size_t capacity, size_t* needed,
                                      dsv4_error** error) DSV4_NOEXCEPT;

/* Renders the same prompt as UTF-8 text, for display and comparison. Do not tokenize it. Writes up
 * to `capacity` bytes to `text`, without a terminator, and the full length to *needed. Errors:
 * those of dsv4_chat_render. */
DSV4_API dsv4_status dsv4_chat_render_text(const char* messages, size_t length,
                                           const dsv4_chat_options* options, char* text,
                                           size_t capacity, size_t* needed,
                                           dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_CHAT_H_ */
