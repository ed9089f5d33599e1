// SPDX-License-Identifier: Apache-2.0
use crate::codes::Finish;
use crate::engine::Engine;
use crate::error::{check, Result};
use crate::memory;
use crate::message::{ChatOptions, Message, MessageViews};
use crate::parser::{collect_into, Event};
use crate::session::{Session, SessionOptions, Step};
use dsv4_sys as sys;
use std::collections::VecDeque;
use std::os::raw::c_void;

/// A session that knows the messages of its conversation: append what the user says or the tools
/// found, take the events of the assistant's turn, append again.
pub struct Conversation {
    session: Session,
    // Decided, but not taken yet.
    events: VecDeque<Event>,
    finish: Finish,
}

impl Conversation {
    pub(crate) fn open(
        engine: &Engine,
        messages: &[Message],
        options: &SessionOptions,
        chat: &ChatOptions,
    ) -> Result<Conversation> {
        let messages = MessageViews::new(messages);
        Conversation::open_by(engine, options, chat, |engine, options, chat, session, error| {
            let (messages, count) = (messages.as_ptr(), messages.len());
            // Safety: all pointers are valid during the call.
            unsafe {
                sys::dsv4_session_open_messages(
                    engine, options, messages, count, chat, session, error,
                )
            }
        })
    }

    pub(crate) fn open_json(
        engine: &Engine,
        messages: &str,
        options: &SessionOptions,
        chat: &ChatOptions,
    ) -> Result<Conversation> {
        Conversation::open_by(engine, options, chat, |engine, options, chat, session, error| {
            let (json, length) = (memory::text_pointer(messages), messages.len());
            // Safety: as above.
            unsafe {
                sys::dsv4_session_open_json(engine, options, json, length, chat, session, error)
            }
        })
    }

    fn open_by(
        engine: &Engine,
        options: &SessionOptions,
        chat: &ChatOptions,
        open: impl FnOnce(
            *mut sys::dsv4_engine,
            *const sys::dsv4_session_options,
            *const sys::dsv4_chat_options,
            *mut *mut sys::dsv4_session,
            *mut *mut sys::dsv4_error,
        ) -> sys::dsv4_status,
    ) -> Result<Conversation> {
        let handle = engine.handle();
        let mut session = std::ptr::null_mut();
        options.with_c(|options| {
            chat.with_c(|chat| {
                check(|error| open(handle.as_ptr(), options, chat, &mut session, error))
            })
        })?;
        Ok(Conversation {
            session: Session::own(session, handle, None),
            events: VecDeque::new(),
            finish: Finish::NONE,
        })
    }

    /// The session that it runs on: statistics, tokens, saving, a cancel handle, ...
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Sampling, token mask, prefill, load. What moves the timeline away from the messages (sync,
    /// rewind, step) makes the next event INVALID_ARGUMENT, until messages are appended or taken back.
    pub fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// What comes after the assistant's turn, which this ends; events of it that were not taken are
    /// dropped.
    pub fn append(&mut self, messages: &[Message]) -> Result<()> {
        let messages = MessageViews::new(messages);
        self.change(|session, error| unsafe {
            // Safety: open and exclusive, as in all that follows.
            let (messages, count) = (messages.as_ptr(), messages.len());
            sys::dsv4_session_append_messages(session, messages, count, error)
        })
    }

    /// The same with a JSON array in the form of OpenAI's chat API.
    pub fn append_json(&mut self, messages: &str) -> Result<()> {
        self.change(|session, error| unsafe {
            let (json, length) = (memory::text_pointer(messages), messages.len());
            sys::dsv4_session_append_json(session, json, length, error)
        })
    }

    /// Keeps the first `count` messages alone.
    pub fn truncate(&mut self, count: usize) -> Result<()> {
        self.change(|session, error| unsafe {
            sys::dsv4_session_truncate_messages(session, count, error)
        })
    }

    /// Puts `messages` in the place of the `count` messages from `first` on; either may be none.
    pub fn replace(&mut self, first: usize, count: usize, messages: &[Message]) -> Result<()> {
        let messages = MessageViews::new(messages);
        self.change(|session, error| unsafe {
            let (messages, given) = (messages.as_ptr(), messages.len());
            sys::dsv4_session_replace_messages(session, first, count, messages, given, error)
        })
    }

    /// The same with a JSON array in the form of OpenAI's chat API.
    pub fn replace_json(&mut self, first: usize, count: usize, messages: &str) -> Result<()> {
        self.change(|session, error| unsafe {
            let (json, length) = (memory::text_pointer(messages), messages.len());
            sys::dsv4_session_replace_json(session, first, count, json, length, error)
        })
    }

    /// Renders the conversation by other options from here on.
    pub fn set_chat_options(&mut self, options: &ChatOptions) -> Result<()> {
        options.with_c(|options| {
            self.change(|session, error| unsafe {
                sys::dsv4_session_set_chat_options(session, options, error)
            })
        })
    }

    fn change(
        &mut self,
        call: impl FnOnce(*mut sys::dsv4_session, *mut *mut sys::dsv4_error) -> sys::dsv4_status,
    ) -> Result<()> {
        // Also when the call fails, the turn has ended.
        self.events.clear();
        self.finish = Finish::NONE;
        check(|error| call(self.session.as_ptr(), error))
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
        let (append, user) = collect_into(&mut self.events);
        check(|error| unsafe {
            let session = self.session.as_ptr();
            sys::dsv4_session_step_events(session, append, user, &mut result, error)
        })?;
        self.finish = Finish(result.finish);
        // Safety: the text lives until the next call on the session.
        Ok(unsafe { Step::from_c(result) })
    }

    /// Ends the assistant's turn where it is. Returns the events that were not taken, and the last.
    pub fn end_turn(&mut self) -> Result<Vec<Event>> {
        let (append, user) = collect_into(&mut self.events);
        check(|error| unsafe {
            sys::dsv4_session_end_turn(self.session.as_ptr(), append, user, error)
        })?;
        Ok(self.events.drain(..).collect())
    }

    pub fn message_count(&self) -> Result<usize> {
        let mut count = 0;
        check(|error| unsafe {
            sys::dsv4_session_get_message_count(self.session.as_ptr(), &mut count, error)
        })?;
        Ok(count)
    }

    /// Up to `count` messages from `first` on, as a JSON array.
    pub fn messages_json(&self, first: usize, count: usize) -> Result<String> {
        let session = self.session.as_ptr();
        memory::fill_string(1024, |json, capacity, needed, error| unsafe {
            sys::dsv4_session_get_messages_json(
                session, first, count, json, capacity, needed, error,
            )
        })
    }

    // For `Engine::step_conversations`.
    pub(crate) fn to_step(
        &mut self,
    ) -> (*mut sys::dsv4_session, sys::dsv4_parser_event_fn, *mut c_void) {
        let (append, user) = collect_into(&mut self.events);
        (self.session.as_ptr(), append, user)
    }

    pub(crate) fn set_finish(&mut self, finish: Finish) {
        self.finish = finish;
    }

    /// The assistant's last message as far as it goes, as JSON.
    pub fn reply_json(&self) -> Result<String> {
        memory::fill_string(1024, |json, capacity, needed, error| unsafe {
            sys::dsv4_session_get_reply_json(self.session.as_ptr(), json, capacity, needed, error)
        })
    }

    /// Another conversation that continues like this one.
    pub fn fork(&mut self) -> Result<Conversation> {
        let session = self.session.fork()?;
        Ok(Conversation { session, events: self.events.clone(), finish: self.finish })
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
