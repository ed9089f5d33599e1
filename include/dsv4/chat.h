/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages to prompt tokens, in the model family's published format. Structure comes from control
 * token ids; message text is encoded with all added tokens off, so that no text can forge a turn.
 */
#ifndef DSV4_CHAT_H_
#define DSV4_CHAT_H_

#include <dsv4/tokenizer.h>

DSV4_BEGIN_DECLS

typedef int32_t dsv4_role;
#define DSV4_ROLE_SYSTEM ((dsv4_role)1)
#define DSV4_ROLE_USER ((dsv4_role)2)
#define DSV4_ROLE_ASSISTANT ((dsv4_role)3)

typedef int32_t dsv4_thinking_mode;
#define DSV4_THINKING_OFF ((dsv4_thinking_mode)0)  /* chat mode: the answer begins at once */
#define DSV4_THINKING_HIGH ((dsv4_thinking_mode)1) /* the model reasons before it answers */

/* One turn. Views: the caller's memory, read during the call only. */
typedef struct dsv4_message {
  uint32_t struct_size;
  dsv4_role role;
  const char* content; /* UTF-8 */
  uint64_t content_length;
  const char* reasoning; /* assistant turns only; may be NULL. Kept where the format keeps it. */
  uint64_t reasoning_length;
} dsv4_message;
#define DSV4_MESSAGE_INIT \
  { sizeof(dsv4_message), 0, NULL, 0, NULL, 0 }

/* Renders the conversation `messages[0..count)` up to where the assistant is to speak (or to the
 * end of its turn when the last message is the assistant's). Tokens as in dsv4_tokenizer_encode.
 * Errors: INVALID_ARGUMENT (names the message and field), UNSUPPORTED (a role of the format that
 * this build does not render), NOT_FOUND (the tokenizer lacks a control token; names it). */
DSV4_API dsv4_status dsv4_chat_render(const dsv4_tokenizer* tokenizer,
                                      const dsv4_message* const* messages, size_t count,
                                      dsv4_thinking_mode thinking, int32_t* ids, size_t capacity,
                                      size_t* needed, dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_CHAT_H_ */
