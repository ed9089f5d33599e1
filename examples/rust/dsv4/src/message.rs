// SPDX-License-Identifier: Apache-2.0
use crate::codes::{ChatEncoder, Role, ThinkingMode};
use crate::error::{check_abi, Result};
use crate::memory::{self, pointer, text_pointer};
use dsv4_sys as sys;
use std::marker::PhantomData;

/// A call of a tool that the assistant has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON.
    pub arguments: String,
}

/// One message. What means nothing in its role stays empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub role: Role,
    pub content: String,
    pub reasoning: String,
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool's result: the call that it answers.
    pub tool_call_id: String,
    /// JSON, an array in the form of OpenAI's chat API.
    pub tools: String,
    /// A JSON schema of the answer.
    pub response_format: String,
    pub task: String,
    /// Of an assistant's turn: without its end token.
    pub without_end: bool,
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>) -> Message {
        Message { role, content: content.into(), ..Default::default() }
    }

    pub fn system(content: impl Into<String>) -> Message {
        Message::new(Role::SYSTEM, content)
    }

    pub fn user(content: impl Into<String>) -> Message {
        Message::new(Role::USER, content)
    }

    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new(Role::ASSISTANT, content)
    }

    /// The result of the tool call `id`.
    pub fn tool(id: impl Into<String>, content: impl Into<String>) -> Message {
        Message { tool_call_id: id.into(), ..Message::new(Role::TOOL, content) }
    }
}

/// Messages as C has them, borrowed.
pub(crate) struct MessageViews<'a> {
    // What `messages` points to; a Vec's memory stays where it is when the Vec moves.
    _calls: Vec<Vec<sys::dsv4_tool_call>>,
    _call_pointers: Vec<Vec<*const sys::dsv4_tool_call>>,
    _messages: Vec<sys::dsv4_message>,
    pointers: Vec<*const sys::dsv4_message>,
    borrowed: PhantomData<&'a [Message]>,
}

impl<'a> MessageViews<'a> {
    pub(crate) fn new(messages: &'a [Message]) -> MessageViews<'a> {
        let calls: Vec<Vec<_>> = messages
            .iter()
            .map(|message| message.tool_calls.iter().map(call_view).collect())
            .collect();
        let call_pointers: Vec<Vec<*const _>> =
            calls.iter().map(|calls| calls.iter().map(|call| call as *const _).collect()).collect();
        let views: Vec<_> = messages
            .iter()
            .zip(&call_pointers)
            .map(|(message, calls)| message_view(message, calls))
            .collect();
        let pointers = views.iter().map(|view| view as *const _).collect();
        MessageViews {
            _calls: calls,
            _call_pointers: call_pointers,
            _messages: views,
            pointers,
            borrowed: PhantomData,
        }
    }

    pub(crate) fn as_ptr(&self) -> *const *const sys::dsv4_message {
        pointer(&self.pointers)
    }

    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }
}

fn call_view(call: &ToolCall) -> sys::dsv4_tool_call {
    sys::dsv4_tool_call {
        id: text_pointer(&call.id),
        id_length: call.id.len() as u64,
        // Not NULL, even if empty.
        name: call.name.as_ptr().cast(),
        name_length: call.name.len() as u64,
        arguments: call.arguments.as_ptr().cast(),
        arguments_length: call.arguments.len() as u64,
        ..Default::default()
    }
}

fn message_view(message: &Message, calls: &[*const sys::dsv4_tool_call]) -> sys::dsv4_message {
    sys::dsv4_message {
        role: message.role.0,
        content: text_pointer(&message.content),
        content_length: message.content.len() as u64,
        reasoning: text_pointer(&message.reasoning),
        reasoning_length: message.reasoning.len() as u64,
        tool_calls: pointer(calls),
        tool_call_count: calls.len() as u64,
        tool_call_id: text_pointer(&message.tool_call_id),
        tool_call_id_length: message.tool_call_id.len() as u64,
        tools: text_pointer(&message.tools),
        tools_length: message.tools.len() as u64,
        response_format: text_pointer(&message.response_format),
        response_format_length: message.response_format.len() as u64,
        task: text_pointer(&message.task),
        task_length: message.task.len() as u64,
        wo_eos: message.without_end.into(),
        ..Default::default()
    }
}

/// How a conversation is rendered.
#[derive(Clone, Debug, Default)]
pub struct ChatOptions {
    pub thinking: ThinkingMode,
    /// The reasoning of earlier turns stays.
    pub keep_reasoning: bool,
    pub omit_begin: bool,
    pub encoder: ChatEncoder,
    /// JSON of messages that were rendered already, whose prompt the result continues.
    pub context: String,
}

impl ChatOptions {
    /// Calls `use_it` with the struct of C, which borrows from `self`.
    pub(crate) fn with_c<T>(&self, use_it: impl FnOnce(*const sys::dsv4_chat_options) -> T) -> T {
        use_it(&sys::dsv4_chat_options {
            thinking: self.thinking.0,
            keep_reasoning: self.keep_reasoning.into(),
            omit_begin: self.omit_begin.into(),
            encoder: self.encoder.0,
            context: text_pointer(&self.context),
            context_length: self.context.len() as u64,
            ..Default::default()
        })
    }
}

/// The prompt of a JSON array of messages as text, for people; it is not to be tokenized.
pub fn render_text(messages: &str, options: &ChatOptions) -> Result<String> {
    check_abi()?;
    options.with_c(|options| {
        // Safety: all pointers are valid during the call.
        memory::fill_string(4096, |text, capacity, needed, error| unsafe {
            let (json, length) = (text_pointer(messages), messages.len());
            sys::dsv4_chat_render_text(json, length, options, text, capacity, needed, error)
        })
    })
}
