// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
// #include <string.h>
import "C"

import "unsafe"

// Event is a piece of a completion.
type Event struct {
	Type EventType
	// Number of the tool call within the completion, from 0; -1 when there is none. Of EventMalformed
	// and EventEnd: the call that breaks off here.
	Call       int
	Text       string // what it says; of EventToolCallStart the tool's name
	ID         string // EventToolCallStart
	Reason     string // EventMalformed: what is wrong
	Repaired   bool   // arguments that were announced as JSON and are none
	Incomplete bool   // EventEnd: within tool markup
	Stopped    bool   // EventEnd: the end-of-sentence marker was seen
}

func newEvent(its *C.dsv4_parser_event) Event {
	// An older library's is shorter: what it lacks means 0.
	var c C.dsv4_parser_event
	size := C.size_t(its.struct_size)
	if size > C.sizeof_dsv4_parser_event {
		size = C.sizeof_dsv4_parser_event
	}
	C.memcpy(unsafe.Pointer(&c), unsafe.Pointer(its), size)
	return Event{
		Type:       EventType(c._type),
		Call:       int(c.call),
		Text:       goText(c.text, c.text_length),
		ID:         goText(c.id, c.id_length),
		Reason:     goText(c.reason, c.reason_length),
		Repaired:   c.repaired != 0,
		Incomplete: c.incomplete != 0,
		Stopped:    c.stopped != 0,
	}
}

// ParserOptions is how completions are parsed.
type ParserOptions struct {
	Thinking ThinkingMode // as the prompt was rendered
	IDPrefix string       // calls get this and their number as ids; "": "call_"
}

// Parser takes a completion apart while it streams.
type Parser struct {
	handle
	c *C.dsv4_parser
}

// NewParser opens a parser for one completion after another. options may be nil.
func NewParser(options *ParserOptions) (*Parser, error) {
	memory := arena{err: checkABI()}
	defer memory.free()
	c := (*C.dsv4_parser_options)(memory.zeroed(C.sizeof_dsv4_parser_options))
	c.struct_size = C.sizeof_dsv4_parser_options
	if options != nil {
		c.thinking = C.dsv4_thinking_mode(options.Thinking)
		if options.IDPrefix != "" {
			c.id_prefix = memory.cString("id_prefix", options.IDPrefix)
		}
	}
	parser := &Parser{}
	err := memory.check(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_parser_open(c, &parser.c, failure)
	})
	if err != nil {
		return nil, err
	}
	parser.handle = handle{what: "parser", free: func() { C.dsv4_parser_close(parser.c) }}
	return parser, nil
}

// Close frees the parser.
func (p *Parser) Close() { p.close(nil) }

func (p *Parser) collect(call func(append C.dsv4_parser_event_fn, user unsafe.Pointer,
	failure **C.dsv4_error) C.dsv4_status) ([]Event, error) {
	if err := p.acquire(true); err != nil {
		return nil, err
	}
	defer p.release()
	var events []Event
	err := collectEvents(&events, func(append C.dsv4_parser_event_fn, user unsafe.Pointer) error {
		return check(func(failure **C.dsv4_error) C.dsv4_status { return call(append, user, failure) })
	})
	return events, err
}

// Feed takes the next bytes, cut anywhere; returns what they decide.
func (p *Parser) Feed(bytes []byte) ([]Event, error) {
	return p.collect(func(append C.dsv4_parser_event_fn, user unsafe.Pointer,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_parser_feed(p.c, textPointer(bytes), C.size_t(len(bytes)), append, user, failure)
	})
}

// End delivers what is held, and the end. The parser is then as new.
func (p *Parser) End() ([]Event, error) {
	return p.collect(func(append C.dsv4_parser_event_fn, user unsafe.Pointer,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_parser_end(p.c, append, user, failure)
	})
}
