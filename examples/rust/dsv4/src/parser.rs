// SPDX-License-Identifier: Apache-2.0
use crate::callback::catch;
use crate::codes::ThinkingMode;
use crate::error::{check, check_abi, Result};
use crate::memory::{self, counted_string};
use dsv4_sys as sys;
use std::mem::size_of;
use std::os::raw::c_void;
use std::ptr::NonNull;

/// A piece of a completion. Calls of tools are numbered within it, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    Reasoning(String),
    /// Content of the message.
    Text(String),
    ToolCallStart {
        call: i32,
        id: String,
        name: String,
    },
    /// A piece of JSON; those of one call, joined, are one object.
    ToolCallArguments {
        call: i32,
        text: String,
        repaired: bool,
    },
    ToolCallEnd {
        call: i32,
        repaired: bool,
    },
    /// What the published parser refuses. `call` breaks off here.
    Malformed {
        reason: String,
        call: Option<i32>,
        text: String,
    },
    /// `text` is tool markup that the end cut off.
    End {
        incomplete: bool,
        stopped: bool,
        call: Option<i32>,
        text: String,
    },
    /// Of a library newer than this crate.
    Unknown(i32),
}

impl Event {
    /// Safety: a valid event, of the size that it says.
    unsafe fn from_c(its: *const sys::dsv4_parser_event) -> Event {
        // An older library's is shorter: what it lacks means 0.
        let mut event = sys::dsv4_parser_event::default();
        let size = size_of::<sys::dsv4_parser_event>().min((*its).struct_size as usize);
        let to: *mut sys::dsv4_parser_event = &mut event;
        std::ptr::copy_nonoverlapping(its.cast::<u8>(), to.cast::<u8>(), size);

        let text = counted_string(event.text, event.text_length);
        let repaired = event.repaired != 0;
        let (call, some_call) = (event.call, (event.call >= 0).then_some(event.call));
        match event.r#type {
            sys::DSV4_PARSER_REASONING => Event::Reasoning(text),
            sys::DSV4_PARSER_TEXT => Event::Text(text),
            sys::DSV4_PARSER_TOOL_CALL_START => Event::ToolCallStart {
                call,
                id: counted_string(event.id, event.id_length),
                name: text,
            },
            sys::DSV4_PARSER_TOOL_CALL_ARGUMENTS => {
                Event::ToolCallArguments { call, text, repaired }
            }
            sys::DSV4_PARSER_TOOL_CALL_END => Event::ToolCallEnd { call, repaired },
            sys::DSV4_PARSER_MALFORMED => Event::Malformed {
                reason: counted_string(event.reason, event.reason_length),
                call: some_call,
                text,
            },
            sys::DSV4_PARSER_END => Event::End {
                incomplete: event.incomplete != 0,
                stopped: event.stopped != 0,
                call: some_call,
                text,
            },
            other => Event::Unknown(other),
        }
    }
}

/// Function and argument for C that append to `events`.
pub(crate) fn collect_into<E: Extend<Event>>(
    events: &mut E,
) -> (sys::dsv4_parser_event_fn, *mut c_void) {
    unsafe extern "C" fn append<E: Extend<Event>>(
        user: *mut c_void,
        event: *const sys::dsv4_parser_event,
    ) {
        let events = &mut *user.cast::<E>();
        catch(|| events.extend(Some(Event::from_c(event))));
    }
    let user: *mut E = events;
    (Some(append::<E>), user.cast())
}

/// How completions are parsed.
#[derive(Clone, Debug, Default)]
pub struct ParserOptions {
    /// As the prompt was rendered.
    pub thinking: ThinkingMode,
    /// Calls get this and their number as ids; `None`: "call_".
    pub id_prefix: Option<String>,
}

/// A completion taken apart while it streams.
pub struct Parser {
    raw: NonNull<sys::dsv4_parser>,
}

// Safety: a parser belongs to no thread; it is no Sync, because calls on it exclude each other.
unsafe impl Send for Parser {}

impl Drop for Parser {
    fn drop(&mut self) {
        // Safety: owned, and closed once.
        unsafe { sys::dsv4_parser_close(self.raw.as_ptr()) }
    }
}

impl Parser {
    pub fn open(options: &ParserOptions) -> Result<Parser> {
        check_abi()?;
        let prefix = memory::c_option("id_prefix", options.id_prefix.as_ref())?;
        let options = sys::dsv4_parser_options {
            thinking: options.thinking.0,
            id_prefix: memory::text_of(&prefix),
            ..Default::default()
        };
        let mut raw = std::ptr::null_mut();
        // Safety: all pointers are valid during the call.
        check(|error| unsafe { sys::dsv4_parser_open(&options, &mut raw, error) })?;
        Ok(Parser { raw: NonNull::new(raw).expect("a parser") })
    }

    /// Takes the next bytes, cut anywhere; returns what they decide.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>> {
        let (data, length) = (memory::pointer(bytes).cast(), bytes.len());
        self.collect(|raw, append, user, error| unsafe {
            // Safety: open and exclusive, as in what follows.
            sys::dsv4_parser_feed(raw, data, length, append, user, error)
        })
    }

    /// Delivers what is held, and the end. The parser is then as new.
    pub fn end(&mut self) -> Result<Vec<Event>> {
        self.collect(|raw, append, user, error| unsafe {
            sys::dsv4_parser_end(raw, append, user, error)
        })
    }

    fn collect(
        &mut self,
        call: impl FnOnce(
            *mut sys::dsv4_parser,
            sys::dsv4_parser_event_fn,
            *mut c_void,
            *mut *mut sys::dsv4_error,
        ) -> sys::dsv4_status,
    ) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let (append, user) = collect_into(&mut events);
        check(|error| call(self.raw.as_ptr(), append, user, error))?;
        Ok(events)
    }
}
