// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import "runtime"

// ToolOptions are which turns a grammar of tools allows.
type ToolOptions struct {
	Choice  ToolChoice
	Name    string // the only tool that may be called; empty: any
	Lenient bool   // constraints of schemas that are not supported are left out
	Quick   bool   // UNSUPPORTED if compiling takes more than about 20 ms
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

// Grammar compiles a grammar for sessions of this engine.
func (e *Engine) Grammar(kind GrammarKind, source string) (*Grammar, error) {
	return e.openGrammar(source, func(text *C.char, length C.size_t, grammar **C.dsv4_grammar,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_grammar_open(e.c, C.dsv4_grammar_kind(kind), text, length, grammar, failure)
	})
}

// c returns the options for C; nil of nil.
func (o *ToolOptions) c(memory *arena) *C.dsv4_tool_options {
	if o == nil {
		return nil
	}
	c := (*C.dsv4_tool_options)(memory.zeroed(C.sizeof_dsv4_tool_options))
	c.struct_size = C.sizeof_dsv4_tool_options
	c.choice = C.dsv4_tool_choice(o.Choice)
	if o.Name != "" {
		c.name = memory.cString("options.Name", o.Name)
	}
	c.lenient = flag(o.Lenient)
	c.quick = flag(o.Quick)
	return c
}

// ToolGrammar opens the grammar of turns that call tools, which are a JSON array in OpenAI's form.
// options may be nil.
func (e *Engine) ToolGrammar(tools string, options *ToolOptions) (*Grammar, error) {
	var memory arena
	defer memory.free()
	c := options.c(&memory)
	if memory.err != nil {
		return nil, memory.err
	}
	return e.openGrammar(tools, func(text *C.char, length C.size_t, grammar **C.dsv4_grammar,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_grammar_open_answer(e.c, text, length, nil, 0, c, grammar, failure)
	})
}

// AnswerGrammar opens the grammar of turns that are JSON of a schema or call tools. tools may be
// empty, and options nil.
func (e *Engine) AnswerGrammar(tools, schema string, options *ToolOptions) (*Grammar, error) {
	var memory arena
	defer memory.free()
	c := options.c(&memory)
	if memory.err != nil {
		return nil, memory.err
	}
	var toolsText *C.char
	var toolsLength C.uint64_t
	if tools != "" {
		toolsText, toolsLength = memory.text(tools)
	}
	return e.openGrammar(schema, func(text *C.char, length C.size_t, grammar **C.dsv4_grammar,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_grammar_open_answer(e.c, toolsText, C.size_t(toolsLength), text, length, c,
			grammar, failure)
	})
}

// UnenforcedJSON returns what the grammar does not enforce of its schemas: a JSON array of places
// and reasons.
func (g *Grammar) UnenforcedJSON() (string, error) {
	var memory arena
	defer memory.free()
	text, err := fillText(memory.check, 256, func(json *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_grammar_get_unenforced(g.c, json, capacity, needed, failure)
	})
	runtime.KeepAlive(g)
	return text, err
}
