// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import "runtime"

// ToolOptions are which turns a grammar of tools allows.
type ToolOptions struct {
	Choice  ToolChoice
	Name    string // the only tool that may be called; empty: any
	Lenient bool   // parameters are not held to the schemas
}

// Grammar is what an output must match, of the engine that opened it. Goroutines may share it. It is
// freed when it is no longer used.
type Grammar struct {
	c *C.dsv4_grammar
}

func newGrammar(c *C.dsv4_grammar) *Grammar {
	g := &Grammar{c: c}
	runtime.SetFinalizer(g, func(g *Grammar) { C.dsv4_grammar_close(g.c) })
	return g
}

// shareGrammar returns one of a grammar that is open; nil for none.
func shareGrammar(c *C.dsv4_grammar) *Grammar {
	if c == nil {
		return nil
	}
	var shared *C.dsv4_grammar
	err := check(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_grammar_share(c, &shared, failure)
	})
	if err != nil {
		return nil
	}
	return newGrammar(shared)
}

func (e *Engine) openGrammar(source string, open func(text *C.char, length C.size_t,
	grammar **C.dsv4_grammar, failure **C.dsv4_error) C.dsv4_status) (*Grammar, error) {
	var memory arena
	defer memory.free()
	text, length := memory.text(source)
	var c *C.dsv4_grammar
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return open(text, C.size_t(length), &c, failure)
	})
	if err != nil {
		return nil, err
	}
	return newGrammar(c), nil
}

// SchemaGrammar opens the grammar of JSON texts that are valid by a schema.
func (e *Engine) SchemaGrammar(schema string) (*Grammar, error) {
	return e.openGrammar(schema, func(text *C.char, length C.size_t, grammar **C.dsv4_grammar,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_grammar_open_schema(e.c, text, length, grammar, failure)
	})
}

// RegexGrammar opens the grammar of texts that a regular expression matches as wholes.
func (e *Engine) RegexGrammar(pattern string) (*Grammar, error) {
	return e.openGrammar(pattern, func(text *C.char, length C.size_t, grammar **C.dsv4_grammar,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_grammar_open_regex(e.c, text, length, grammar, failure)
	})
}

// EBNFGrammar opens a grammar in EBNF, with the rule "root".
func (e *Engine) EBNFGrammar(rules string) (*Grammar, error) {
	return e.openGrammar(rules, func(text *C.char, length C.size_t, grammar **C.dsv4_grammar,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_grammar_open_ebnf(e.c, text, length, grammar, failure)
	})
}

// ToolGrammar opens the grammar of turns that call tools, which are a JSON array in OpenAI's form.
// options may be nil.
func (e *Engine) ToolGrammar(tools string, options *ToolOptions) (*Grammar, error) {
	var memory arena
	defer memory.free()
	var c *C.dsv4_tool_options
	if options != nil {
		c = (*C.dsv4_tool_options)(memory.zeroed(C.sizeof_dsv4_tool_options))
		c.struct_size = C.sizeof_dsv4_tool_options
		c.choice = C.dsv4_tool_choice(options.Choice)
		if options.Name != "" {
			c.name = memory.cString("options.Name", options.Name)
		}
		c.lenient = flag(options.Lenient)
		if memory.err != nil {
			return nil, memory.err
		}
	}
	return e.openGrammar(tools, func(text *C.char, length C.size_t, grammar **C.dsv4_grammar,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_grammar_open_tools(e.c, text, length, c, grammar, failure)
	})
}
