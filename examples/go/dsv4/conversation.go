// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import (
	"context"
	"unsafe"
)

// Conversation is a session on messages: sync it to all messages of the conversation, take the events
// of the assistant's turn, add its Reply to the list and what the user says or the tools found, sync
// again. Rows of everything before the first change are reused. One goroutine at a time;
// Session().Cancel and Close are for any.
type Conversation struct {
	session *Session
	events  []Event // decided, but not taken yet
	finish  Finish
	reply   Message
	call    *ToolCall // that is not complete yet; becomes one of the reply's
}

// Session returns the session that it runs on: statistics, sampling, tokens, saving, ... What moves
// its timeline away from the messages (Sync, Rewind, Step) makes the next event InvalidArgument, until
// messages are synced again.
func (c *Conversation) Session() *Session { return c.session }

// Close frees the session.
func (c *Conversation) Close() { c.session.Close() }

// Sync makes the messages those of the list, all of the conversation. It ends the assistant's turn;
// events of it that were not taken are dropped. options may be nil.
func (c *Conversation) Sync(messages []Message, options *ChatOptions) (SyncResult, error) {
	var memory arena
	defer memory.free()
	cMessages, count := memory.messages(messages)
	cOptions := options.c(&memory)
	return c.sync(func(result *C.dsv4_sync_result, failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_sync_messages(c.session.c, cMessages, count, cOptions, result, failure)
	})
}

// SyncJSON takes a JSON array in the form of OpenAI's chat API.
func (c *Conversation) SyncJSON(messages string, options *ChatOptions) (SyncResult, error) {
	var memory arena
	defer memory.free()
	json, length := memory.text(messages)
	cOptions := options.c(&memory)
	return c.sync(func(result *C.dsv4_sync_result, failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_sync_json(c.session.c, json, C.size_t(length), cOptions, result, failure)
	})
}

// sync drops events that were not taken: the turn ends, also when the call fails.
func (c *Conversation) sync(call func(result *C.dsv4_sync_result,
	failure **C.dsv4_error) C.dsv4_status) (SyncResult, error) {
	c.events, c.finish, c.reply, c.call = nil, FinishNone, Message{Role: RoleAssistant}, nil
	result := C.dsv4_sync_result{struct_size: C.sizeof_dsv4_sync_result}
	err := c.session.change(func(failure **C.dsv4_error) C.dsv4_status { return call(&result, failure) })
	return newSyncResult(&result), err
}

// Reply is the assistant's message since the last sync, as far as it goes, for the next one. A tool
// call is part of it once it is complete.
func (c *Conversation) Reply() Message {
	reply := c.reply
	reply.ToolCalls = append([]ToolCall(nil), reply.ToolCalls...)
	return reply
}

// record adds the events from number first on to the reply.
func (c *Conversation) record(first int) {
	for _, event := range c.events[first:] {
		switch event.Type {
		case EventReasoning:
			c.reply.Reasoning += event.Text
		case EventText:
			c.reply.Content += event.Text
		case EventToolCallStart:
			c.call = &ToolCall{ID: event.ID, Name: event.Text}
		case EventToolCallArguments:
			c.call.Arguments += event.Text
		case EventToolCallEnd:
			c.reply.ToolCalls = append(c.reply.ToolCalls, *c.call)
		}
	}
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
	known := len(c.events)
	err = collectEvents(&c.events, func(append C.dsv4_parser_event_fn, user unsafe.Pointer) error {
		return c.session.compute(ctx, func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_session_step(c.session.c, append, user, &result, failure)
		}, func() { step = newStep(&result) })
	})
	if err == nil {
		c.record(known)
		c.finish = step.Finish
	}
	return step, err
}

// EndTurn ends the assistant's turn where it is. Returns the events that were not taken, and the last.
func (c *Conversation) EndTurn() ([]Event, error) {
	known := len(c.events)
	err := collectEvents(&c.events, func(append C.dsv4_parser_event_fn, user unsafe.Pointer) error {
		return c.session.change(func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_session_end_turn(c.session.c, append, user, failure)
		})
	})
	c.record(known)
	events := c.events
	c.events = nil
	return events, err
}

// ReplyJSON returns Reply as JSON, with the ids of tool calls.
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
	return &Conversation{session: session, events: events, finish: c.finish, reply: c.Reply(),
		call: c.call}, nil
}
