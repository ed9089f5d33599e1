// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import (
	"context"
	"unsafe"
)

// Conversation is a session that knows its messages: append what the user says or the tools found,
// take the events of the assistant's turn, append again. One goroutine at a time; Session().Cancel
// and Close are for any.
type Conversation struct {
	session *Session
	events  []Event // decided, but not taken yet
	finish  Finish
}

// Session returns the session that it runs on: statistics, sampling, tokens, saving, ... What moves
// its timeline away from the messages (Sync, Rewind, Step) makes the next event InvalidArgument, until
// messages are appended or taken back.
func (c *Conversation) Session() *Session { return c.session }

// Close frees the session.
func (c *Conversation) Close() { c.session.Close() }

// change drops events that were not taken: the turn ends, also when the call fails.
func (c *Conversation) change(call failing) error {
	c.events, c.finish = nil, FinishNone
	return c.session.change(call)
}

// Append adds what comes after the assistant's turn, which this ends.
func (c *Conversation) Append(messages ...Message) error {
	var memory arena
	defer memory.free()
	cMessages, count := memory.messages(messages)
	return c.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_append_messages(c.session.c, cMessages, count, failure)
	})
}

// AppendJSON takes a JSON array in the form of OpenAI's chat API.
func (c *Conversation) AppendJSON(messages string) error {
	bytes := []byte(messages)
	return c.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_append_json(c.session.c, textPointer(bytes), C.size_t(len(bytes)), failure)
	})
}

// Truncate keeps the first count messages alone.
func (c *Conversation) Truncate(count int) error {
	return c.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_truncate_messages(c.session.c, C.size_t(count), failure)
	})
}

// Replace puts messages in the place of the count messages from first on; either may be none.
func (c *Conversation) Replace(first, count int, messages ...Message) error {
	var memory arena
	defer memory.free()
	cMessages, given := memory.messages(messages)
	return c.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_replace_messages(c.session.c, C.size_t(first), C.size_t(count), cMessages,
			given, failure)
	})
}

// ReplaceJSON takes a JSON array in the form of OpenAI's chat API.
func (c *Conversation) ReplaceJSON(first, count int, messages string) error {
	bytes := []byte(messages)
	return c.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_replace_json(c.session.c, C.size_t(first), C.size_t(count),
			textPointer(bytes), C.size_t(len(bytes)), failure)
	})
}

// SetChatOptions renders the conversation by other options from here on.
func (c *Conversation) SetChatOptions(options *ChatOptions) error {
	var memory arena
	defer memory.free()
	cOptions := options.c(&memory)
	return c.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_set_chat_options(c.session.c, cOptions, failure)
	})
}

// Events are those of the assistant's turn, computed as they are asked for:
//
//	events := conversation.Events(ctx)
//	for events.Next() {
//		fmt.Print(events.Event().Text)
//	}
//	if err := events.Err(); err != nil { ... }
//
// The turn may be left and taken up again; after an error, too, it can continue.
type Events struct {
	conversation *Conversation
	ctx          context.Context
	event        Event
	over         bool
	err          error
}

// Events begins or continues the assistant's turn.
func (c *Conversation) Events(ctx context.Context) *Events {
	return &Events{conversation: c, ctx: ctx}
}

// Next reports whether there is another event.
func (e *Events) Next() bool {
	c := e.conversation
	for len(c.events) == 0 {
		if e.over {
			return false
		}
		if _, e.err = c.Step(e.ctx); e.err != nil {
			e.over = true
			return false
		}
	}
	e.event, c.events = c.events[0], c.events[1:]
	e.over = e.over || e.event.Type == EventEnd
	return true
}

// Event returns what Next found.
func (e *Events) Event() Event { return e.event }

// Err returns why Next found no more, nil at the end of the turn.
func (e *Events) Err() error { return e.err }

// Finish returns why the last turn ended; FinishNone while it continues.
func (c *Conversation) Finish() Finish { return c.finish }

// Step samples one token; what it decides is for Events, which calls this.
func (c *Conversation) Step(ctx context.Context) (step Step, err error) {
	result := C.dsv4_step_result{struct_size: C.sizeof_dsv4_step_result}
	err = collectEvents(&c.events, func(append C.dsv4_parser_event_fn, user unsafe.Pointer) error {
		return c.session.compute(ctx, func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_session_step_events(c.session.c, append, user, &result, failure)
		}, func() { step = newStep(&result) })
	})
	if err == nil {
		c.finish = step.Finish
	}
	return step, err
}

// EndTurn ends the assistant's turn where it is. Returns the events that were not taken, and the last.
func (c *Conversation) EndTurn() ([]Event, error) {
	err := collectEvents(&c.events, func(append C.dsv4_parser_event_fn, user unsafe.Pointer) error {
		return c.session.change(func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_session_end_turn(c.session.c, append, user, failure)
		})
	})
	events := c.events
	c.events = nil
	return events, err
}

// MessageCount returns how many messages the conversation has.
func (c *Conversation) MessageCount() (int, error) {
	var count C.size_t
	err := c.session.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_get_message_count(c.session.c, &count, failure)
	})
	return int(count), err
}

// MessagesJSON lists up to count messages from first on, as a JSON array.
func (c *Conversation) MessagesJSON(first, count int) (string, error) {
	return fillText(c.session.use, 1024, func(json *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_get_messages_json(c.session.c, C.size_t(first), C.size_t(count), json,
			capacity, needed, failure)
	})
}

// ReplyJSON returns the assistant's last message as far as it goes.
func (c *Conversation) ReplyJSON() (string, error) {
	return fillText(c.session.use, 1024, func(json *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_get_reply_json(c.session.c, json, capacity, needed, failure)
	})
}

// Fork returns another conversation that continues like this one.
func (c *Conversation) Fork() (*Conversation, error) {
	session, err := c.session.Fork()
	if err != nil {
		return nil, err
	}
	events := append([]Event(nil), c.events...)
	return &Conversation{session: session, events: events, finish: c.finish}, nil
}
