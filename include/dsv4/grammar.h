/* SPDX-License-Identifier: Apache-2.0
 *
 * Grammars: what an output must match, given to a session as dsv4_sampling.grammar. Tokens that
 * would lead away from it are not chosen, and the turn ends only where the output matches; limits
 * (max_tokens, the context, stop strings, a cancelled call) may end it before.
 *
 * - A grammar begins with the next token after it was set, and again with each turn or sync.
 * - Where the prompt opens the reasoning, the grammar begins after `</think>`. Until then the turn
 *   cannot end, and tokens are free; in a grammar of tools they spell neither `</think>` nor the
 *   mark of calls, as text.
 * - Drafts change no token.
 * - dsv4_session_save keeps the grammar and how far the output is in it.
 *
 * Which keywords of JSON Schema there are, and what is written otherwise than by other programs,
 * is told in docs/structured-output.md. What is not supported is an error that names its place,
 * never ignored.
 *
 * Bounds. Sources are at most 1 MiB (regular expressions: 16 KiB), JSON nests at most 60 deep. What
 * a grammar remembers takes at most 64 MiB, and masks 64 MiB more; compiling ends after about 1 s.
 * What needs more is DSV4_ERR_UNSUPPORTED, when it is opened or, where the output makes it so, from
 * the step. 128 KiB of the calling thread's stack are enough.
 */
#ifndef DSV4_GRAMMAR_H_
#define DSV4_GRAMMAR_H_

#include <dsv4/engine.h>

DSV4_BEGIN_DECLS

/* Immutable: any sessions of its engine, and any threads, may use one at the same time. */
typedef struct dsv4_grammar dsv4_grammar;

/* Each function compiles one kind of grammar from `length` bytes of UTF-8, for the tokens of
 * `engine`, which it does not keep open. *grammar is owned by the caller, who may close it while
 * sessions use it. The first grammar of an engine also sorts its tokens, some 100 ms.
 *
 * Errors: INVALID_ARGUMENT for what is malformed and for what nothing can match, UNSUPPORTED for
 * what is refused and for the bounds above, NOT_FOUND for a model without a tokenizer. Messages
 * name the place: of schemas and tools by JSON pointer, as in "schema#/properties/a/minLength". */

/* JSON texts that are valid by a JSON Schema (draft 2020-12). */
DSV4_API dsv4_status dsv4_grammar_open_schema(const dsv4_engine* engine, const char* schema,
                                              size_t length, dsv4_grammar** grammar,
                                              dsv4_error** error) DSV4_NOEXCEPT;

/* Texts that a regular expression (ECMA-262, Unicode mode) matches as wholes. */
DSV4_API dsv4_status dsv4_grammar_open_regex(const dsv4_engine* engine, const char* pattern,
                                             size_t length, dsv4_grammar** grammar,
                                             dsv4_error** error) DSV4_NOEXCEPT;

/* Texts of the rule `root` of a grammar in EBNF. */
DSV4_API dsv4_status dsv4_grammar_open_ebnf(const dsv4_engine* engine, const char* rules,
                                            size_t length, dsv4_grammar** grammar,
                                            dsv4_error** error) DSV4_NOEXCEPT;

/* Which turns a grammar of tools allows. */
typedef int32_t dsv4_tool_choice;
#define DSV4_TOOL_CHOICE_AUTO ((dsv4_tool_choice)0)     /* text, which calls may end */
#define DSV4_TOOL_CHOICE_NONE ((dsv4_tool_choice)1)     /* text without calls */
#define DSV4_TOOL_CHOICE_REQUIRED ((dsv4_tool_choice)2) /* calls, one or more */

/* 0 in every field allows calls of all tools, held to their schemas. */
typedef struct dsv4_tool_options {
  uint32_t struct_size;
  dsv4_tool_choice choice;
  const char* name; /* NUL-terminated: the only tool that may be called; NULL: any */
  int32_t lenient;  /* 1: parameters are not held to the schemas, of any tool */
  int32_t reserved;
} dsv4_tool_options;
#define DSV4_TOOL_OPTIONS_INIT \
  { sizeof(dsv4_tool_options), DSV4_TOOL_CHOICE_AUTO, NULL, 0, 0 }

/* Turns that call tools in the model's own markup. `tools` is a JSON array of functions in OpenAI's
 * form, bare or in objects with the key "function". A function's "parameters" are its schema; one
 * with "strict": false is not held to it. The attribute that tells strings from other values is
 * held to the type of the value. `options`: NULL for the defaults. */
DSV4_API dsv4_status dsv4_grammar_open_tools(const dsv4_engine* engine, const char* tools,
                                             size_t length, const dsv4_tool_options* options,
                                             dsv4_grammar** grammar,
                                             dsv4_error** error) DSV4_NOEXCEPT;

/* Another handle of the same grammar, as for one that dsv4_session_get_sampling shows. */
DSV4_API dsv4_status dsv4_grammar_share(const dsv4_grammar* grammar, dsv4_grammar** shared,
                                        dsv4_error** error) DSV4_NOEXCEPT;

/* Accepts NULL. */
DSV4_API void dsv4_grammar_close(dsv4_grammar* grammar) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_GRAMMAR_H_ */
