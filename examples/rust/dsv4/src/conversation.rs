// SPDX-License-Identifier: Apache-2.0
use crate::codes::Finish;
use crate::error::{check, Result};
use crate::memory;
use crate::message::{ChatOptions, Message, MessageViews, ToolCall};
use crate::mirror::filled;
use crate::parser::{collect_into, Event};
use crate::reports::SyncResult;
use crate::session::{Session, Step};
use dsv4_sys as sys;
use std::collections::VecDeque;
use std::os::raw::c_void;

/// A session on messages: sync it to all messages of the conversation, take the events of the
/// assistant's turn, add its reply to the list and what the user says or the tools found, sync
/// again. Rows of everything before the first change are reused.
pub struct Conversation {
    session: Session,
    // Decided, but not taken yet.
    events: VecDeque<Event>,
    finish: Finish,
    reply: Message,
    // A tool call that is not complete yet, at the end of `reply`.
    open_call: Option<ToolCall>,
}

impl Conversation {
    pub(crate) fn on(session: Session) -> Conversation {
        Conversation {
            session,
            events: VecDeque::new(),
            finish: Finish::NONE,
            reply: Message::assistant(""),
            open_call: None,
        }
    }

    /// The session that it runs on: statistics, tokens, saving, a cancel handle, ...
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Sampling, allowed tokens, prefill, load. What moves the timeline away from the messages (sync,
    /// rewind, step) makes the next event INVALID_ARGUMENT, until messages are synced again.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Makes the messages those of the list, all of the conversation. Ends the assistant's turn;
    /// events of it that were not taken are dropped.
    pub fn sync(&mut self, messages: &[Message], options: &ChatOptions) -> Result<SyncResult> {
        let messages = MessageViews::new(messages);
        let (messages, count) = (messages.as_ptr(), messages.len());
        self.sync_by(options, |session, chat, result, error| unsafe {
            // Safety: open and exclusive, as in all that follows.
            sys::dsv4_session_sync_messages(session, messages, count, chat, result, error)
        })
    }

    /// The same with a JSON array in the form of OpenAI's chat API.
    pub fn sync_json(&mut self, messages: &str, options: &ChatOptions) -> Result<SyncResult> {
        let (json, length) = (memory::text_pointer(messages), messages.len());
        self.sync_by(options, |session, chat, result, error| unsafe {
            sys::dsv4_session_sync_json(session, json, length, chat, result, error)
        })
    }

    fn sync_by(
        &mut self,
        options: &ChatOptions,
        call: impl FnOnce(
            *mut sys::dsv4_session,
            *const sys::dsv4_chat_options,
            *mut sys::dsv4_sync_result,
            *mut *mut sys::dsv4_error,
        ) -> sys::dsv4_status,
    ) -> Result<SyncResult> {
        // Also when the call fails, the turn has ended.
        self.events.clear();
        self.finish = Finish::NONE;
        self.reply = Message::assistant("");
        self.open_call = None;
        let session = self.session.as_ptr();
        // Safety: no pointer in the result.
        options.with_c(|chat| unsafe { filled(|result, error| call(session, chat, result, error)) })
    }

    /// The assistant's message since the last sync, as far as it goes, for the next one. A tool call
    /// is part of it once it is complete.
    pub fn reply(&self) -> &Message {
        &self.reply
    }

    // Adds the events from number `first` on to the reply.
    fn record(&mut self, first: usize) {
        for event in self.events.iter().skip(first) {
            match event {
                Event::Reasoning(text) => self.reply.reasoning += text,
                Event::Text(text) => self.reply.content += text,
                Event::ToolCallStart { id, name, .. } => {
                    let (id, name) = (id.clone(), name.clone());
                    self.open_call = Some(ToolCall { id, name, arguments: String::new() });
                }
                Event::ToolCallArguments { text, .. } => {
                    if let Some(call) = &mut self.open_call {
                        call.arguments += text;
                    }
                }
                Event::ToolCallEnd { .. } => self.reply.tool_calls.extend(self.open_call.take()),
                _ => {}
            }
        }
    }

    /// The events of the assistant's turn, computed as they are asked for. It may be left and taken
    /// up again; after an error, too, the turn can continue.
    pub fn events(&mut self) -> Events<'_> {
        Events { conversation: self, over: false }
    }

    /// Why the last turn ended; NONE while it continues.
    pub fn finish(&self) -> Finish {
        self.finish
    }

    /// Samples one token; what it decides is for [`Conversation::events`], which calls this.
    pub fn step(&mut self) -> Result<Step> {
        let mut result = sys::dsv4_step_result::default();
        let known = self.events.len();
        let (append, user) = collect_into(&mut self.events);
        check(|error| unsafe {
            let session = self.session.as_ptr();
            sys::dsv4_session_step(session, append, user, &mut result, error)
        })?;
        self.took(known, Finish(result.finish));
        // Safety: the text lives until the next call on the session.
        Ok(unsafe { Step::from_c(result) })
    }

    /// Ends the assistant's turn where it is. Returns the events that were not taken, and the last.
    pub fn end_turn(&mut self) -> Result<Vec<Event>> {
        let known = self.events.len();
        let (append, user) = collect_into(&mut self.events);
        check(|error| unsafe {
            sys::dsv4_session_end_turn(self.session.as_ptr(), append, user, error)
        })?;
        self.record(known);
        Ok(self.events.drain(..).collect())
    }

    // For `Engine::step_conversations`.
    pub(crate) fn to_step(
        &mut self,
    ) -> (*mut sys::dsv4_session, sys::dsv4_parser_event_fn, *mut c_void) {
        let (append, user) = collect_into(&mut self.events);
        (self.session.as_ptr(), append, user)
    }

    pub(crate) fn untaken(&self) -> usize {
        self.events.len()
    }

    // What was decided and not taken, for the queue.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    // After a step: there were `known` events before.
    pub(crate) fn took(&mut self, known: usize, finish: Finish) {
        self.record(known);
        self.finish = finish;
    }

    /// [`Conversation::reply`] as JSON, with the ids of tool calls.
    pub fn reply_json(&self) -> Result<String> {
        memory::fill_string(1024, |json, capacity, needed, error| unsafe {
            sys::dsv4_session_get_reply_json(self.session.as_ptr(), json, capacity, needed, error)
        })
    }

    /// Another conversation that continues like this one.
    pub fn fork(&mut self) -> Result<Conversation> {
        let session = self.session.fork()?;
        Ok(Conversation {
            session,
            events: self.events.clone(),
            finish: self.finish,
            reply: self.reply.clone(),
            open_call: self.open_call.clone(),
        })
    }
}

/// Of [`Conversation::events`].
pub struct Events<'a> {
    conversation: &'a mut Conversation,
    over: bool,
}

impl Iterator for Events<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        loop {
            if let Some(event) = self.conversation.events.pop_front() {
                self.over |= matches!(event, Event::End { .. });
                return Some(Ok(event));
            }
            if self.over {
                return None;
            }
            if let Err(error) = self.conversation.step() {
                self.over = true;
                return Some(Err(error));
            }
        }
    }
}

impl std::iter::FusedIterator for Events<'_> {}
