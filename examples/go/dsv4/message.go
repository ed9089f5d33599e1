// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

// ToolCall is a call of a tool that the assistant has made.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // JSON
}

// Message is one message. What means nothing in its role stays empty.
type Message struct {
	Role           Role
	Content        string
	Reasoning      string
	ToolCalls      []ToolCall
	ToolCallID     string // of a tool's result: the call that it answers
	Tools          string // JSON, an array in the form of OpenAI's chat API
	ResponseFormat string // a JSON schema of the answer
	Task           string
	WithoutEnd     bool // of an assistant's turn: without its end token
}

func (m *Message) c(memory *arena) *C.dsv4_message {
	calls := make([]*C.dsv4_tool_call, len(m.ToolCalls))
	for i, call := range m.ToolCalls {
		c := (*C.dsv4_tool_call)(memory.zeroed(C.sizeof_dsv4_tool_call))
		c.struct_size = C.sizeof_dsv4_tool_call
		c.id, c.id_length = memory.text(call.ID)
		c.name, c.name_length = memory.textNotNil(call.Name)
		c.arguments, c.arguments_length = memory.textNotNil(call.Arguments)
		calls[i] = c
	}
	c := (*C.dsv4_message)(memory.zeroed(C.sizeof_dsv4_message))
	c.struct_size = C.sizeof_dsv4_message
	c.role = C.dsv4_role(m.Role)
	c.content, c.content_length = memory.text(m.Content)
	c.reasoning, c.reasoning_length = memory.text(m.Reasoning)
	c.tool_calls, c.tool_call_count = array(memory, calls), C.uint64_t(len(calls))
	c.tool_call_id, c.tool_call_id_length = memory.text(m.ToolCallID)
	c.tools, c.tools_length = memory.text(m.Tools)
	c.response_format, c.response_format_length = memory.text(m.ResponseFormat)
	c.task, c.task_length = memory.text(m.Task)
	c.wo_eos = flag(m.WithoutEnd)
	return c
}

func (a *arena) messages(messages []Message) (**C.dsv4_message, C.size_t) {
	pointers := make([]*C.dsv4_message, len(messages))
	for i := range messages {
		pointers[i] = messages[i].c(a)
	}
	return array(a, pointers), C.size_t(len(pointers))
}

// ChatOptions is how a conversation is rendered.
type ChatOptions struct {
	Thinking      ThinkingMode
	KeepReasoning bool // the reasoning of earlier turns stays
	OmitBegin     bool
	Encoder       ChatEncoder
	Context       string // JSON of messages that were rendered already, whose prompt the result continues
}

func (o *ChatOptions) c(memory *arena) *C.dsv4_chat_options {
	c := (*C.dsv4_chat_options)(memory.zeroed(C.sizeof_dsv4_chat_options))
	c.struct_size = C.sizeof_dsv4_chat_options
	if o == nil {
		return c
	}
	c.thinking = C.dsv4_thinking_mode(o.Thinking)
	c.keep_reasoning = flag(o.KeepReasoning)
	c.omit_begin = flag(o.OmitBegin)
	c.context, c.context_length = memory.text(o.Context)
	c.encoder = C.dsv4_chat_encoder(o.Encoder)
	return c
}

// RenderText returns the prompt of a JSON array of messages as text, for people; it is not to be
// tokenized. options may be nil.
func RenderText(messages string, options *ChatOptions) (string, error) {
	memory := arena{err: checkABI()}
	defer memory.free()
	json, length := memory.text(messages)
	cOptions := options.c(&memory)
	return fillText(memory.check, 4096, func(text *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_chat_render_text(json, C.size_t(length), cOptions, text, capacity, needed, failure)
	})
}
