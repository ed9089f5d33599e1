/* SPDX-License-Identifier: Apache-2.0
 *
 * Grammars constrain the output of a session (dsv4_sampling.grammar). The session never chooses a
 * token after which the output could not match, and the model can end its turn only where the
 * output matches. Limits may end the turn earlier: max_tokens, the context, stop strings, or a
 * cancelled call.
 *
 * - A grammar applies from the next token after it was set. It starts over with each turn or sync.
 * - If the prompt opens the reasoning, the grammar applies after `</think>`. Until then the model
 *   chooses freely but cannot end the turn. With a grammar of tools, the reasoning cannot spell
 *   `</think>` or the marker of tool calls as plain text.
 * - Drafts change no token.
 * - dsv4_session_save saves the grammar and the position of the output in it.
 *
 * docs/structured-output.md lists the supported keywords of JSON Schema. A constraint that is not
 * supported is an error that names its place, or, with `lenient`, is left out. Keywords that the
 * draft does not know and unknown formats are annotations: they constrain nothing.
 * dsv4_grammar_get_unenforced returns what a grammar leaves out.
 *
 * Limits
 * - Source text: 1 MiB; regular expressions: 16 KiB. JSON nesting: 60 levels.
 * - Memory of a grammar: 64 MiB for its states and 64 MiB for cached token masks.
 * - Memory of all grammars of an engine: 256 MiB. States and masks that were not used for longest
 *   are freed for others, and computed again when they are needed. A grammar for which those that
 *   are open leave no room is DSV4_ERR_OUT_OF_HOST_MEMORY.
 * - Time to compile: about 1 s; with `quick` about 20 ms.
 * - Time for one token mask: about 1 s.
 * - Stack of the calling thread: 128 KiB.
 * A grammar beyond another limit is DSV4_ERR_UNSUPPORTED, from the function that opens it or from
 * the step that reaches the limit.
 */
#ifndef DSV4_GRAMMAR_H_
#define DSV4_GRAMMAR_H_

#include <dsv4/engine.h>

DSV4_BEGIN_DECLS

/* Immutable. Sessions of its engine may share it, on any threads. */
typedef struct dsv4_grammar dsv4_grammar;

typedef int32_t dsv4_grammar_kind;
/* JSON texts that are valid under a JSON Schema (draft 2020-12). */
#define DSV4_GRAMMAR_SCHEMA ((dsv4_grammar_kind)1)
/* Texts that a regular expression (ECMA-262, Unicode mode) matches from beginning to end. */
#define DSV4_GRAMMAR_REGEX ((dsv4_grammar_kind)2)
/* Texts of the rule `root` of a grammar in EBNF. */
#define DSV4_GRAMMAR_EBNF ((dsv4_grammar_kind)3)

/* Compiles a grammar from `length` bytes of UTF-8 for the vocabulary of `engine`.
 * - On success the caller owns *grammar, and may close it while sessions use it. It does not keep
 *   the engine alive.
 * - The first grammar of an engine also builds an index of the vocabulary (about 100 ms).
 * Errors: INVALID_ARGUMENT for a malformed source and for a grammar that no text matches;
 * UNSUPPORTED for unsupported features and beyond the limits above; NOT_FOUND if the model has no
 * tokenizer. Messages name the place, in schemas and tools by JSON pointer, as in
 * "schema#/properties/a/minLength". */
DSV4_API dsv4_status dsv4_grammar_open(const dsv4_engine* engine, dsv4_grammar_kind kind,
                                       const char* source, size_t length, dsv4_grammar** grammar,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* Which turns a grammar of tools allows. */
typedef int32_t dsv4_tool_choice;
#define DSV4_TOOL_CHOICE_AUTO ((dsv4_tool_choice)0)     /* text, optionally followed by calls */
#define DSV4_TOOL_CHOICE_NONE ((dsv4_tool_choice)1)     /* text without calls */
#define DSV4_TOOL_CHOICE_REQUIRED ((dsv4_tool_choice)2) /* one or more calls */

/* Options of dsv4_grammar_open_answer. All fields 0: any tool may be
 * called, and its arguments must match its schema. */
typedef struct dsv4_tool_options {
  uint32_t struct_size;
  dsv4_tool_choice choice;
  const char* name; /* the only tool that may be called, NUL-terminated; NULL: any */
  int32_t lenient;  /* 1: constraints of schemas that are not supported are left out */
  int32_t quick;    /* 1: UNSUPPORTED if compiling takes more than about 20 ms. For a thread that
                       others wait for; another thread can try again without it. With `lenient`,
                       nothing is left out then only because it takes long. */
} dsv4_tool_options;
#define DSV4_TOOL_OPTIONS_INIT \
  { sizeof(dsv4_tool_options), DSV4_TOOL_CHOICE_AUTO, NULL, 0, 0 }

/* Matches turns that call tools in the model's markup, or are JSON of a schema.
 * - tools: a JSON array of functions in OpenAI's form, bare or in objects with the key "function".
 *   Arguments must match the schema "parameters" of their function. Its "strict", if it has one,
 *   replaces `lenient` of the options: with false, constraints that are not supported are left out.
 *   NULL: no tools; then as dsv4_grammar_open.
 * - schema: JSON Schema of the turns without calls. NULL: any text.
 * - options: may be NULL. With DSV4_TOOL_CHOICE_AUTO the turn is either JSON or calls (without a
 *   schema, text optionally followed by calls), with NONE the former, with REQUIRED calls.
 * `lenient` is of the schema, too. Ownership and errors: as in dsv4_grammar_open. INVALID_ARGUMENT
 * if tools and schema are NULL. */
DSV4_API dsv4_status dsv4_grammar_open_answer(const dsv4_engine* engine, const char* tools,
                                              size_t tools_length, const char* schema,
                                              size_t schema_length,
                                              const dsv4_tool_options* options,
                                              dsv4_grammar** grammar,
                                              dsv4_error** error) DSV4_NOEXCEPT;

/* Returns what the grammar does not enforce of its schemas, up to 64 places, as a JSON array of
 * objects {"place": "schema#/properties/a/format", "reason": "..."}. "[]" if it enforces
 * everything. Writes up to `capacity` bytes to `json`, without a terminator, and the full length to
 * *needed. Any thread. */
DSV4_API dsv4_status dsv4_grammar_get_unenforced(const dsv4_grammar* grammar, char* json,
                                                 size_t capacity, size_t* needed,
                                                 dsv4_error** error) DSV4_NOEXCEPT;

/* Closes the handle. Sessions that use the grammar keep it. Accepts NULL. */
DSV4_API void dsv4_grammar_close(dsv4_grammar* grammar) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_GRAMMAR_H_ */
