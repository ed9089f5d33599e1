// SPDX-License-Identifier: Apache-2.0
//! Safe Rust over libdsv4, which runs DeepSeek V4 Flash.
//!
//! ```no_run
//! use dsv4::{ChatOptions, Engine, EngineOptions, Event, Message};
//!
//! # fn main() -> dsv4::Result<()> {
//! let engine = Engine::open("models/dsv4-tiny", &EngineOptions::default())?;
//! let mut conversation = engine.conversation()?;
//! let mut messages = vec![Message::user("What is the capital of France?")];
//! conversation.sync(&messages, &ChatOptions::default())?;
//! for event in conversation.events() {
//!     if let Event::Text(text) = event? {
//!         print!("{text}");
//!     }
//! }
//! messages.push(conversation.reply().clone());
//! # Ok(())
//! # }
//! ```
//!
//! Handles close themselves. An [`Engine`] is one model in memory, cheap to clone and shared between
//! threads; its sessions, conversations and tokenizer keep it open. A [`Session`], a
//! [`Conversation`] and a [`Parser`] move between threads, but are used by one at a time, which the
//! compiler sees to; a [`CancelHandle`] stops a session's work from any thread. A [`Queue`] answers many
//! conversations at once, with a thread of its own, and keeps them by name; its answers are iterators
//! and async streams.
//!
//! Closures given to the library may panic: the call that they were given to is cancelled, and the
//! panic continues from there, so that none crosses C. Reference and limits of every call stand in the
//! C headers, `<dsv4/dsv4.h>`, under the same names.

mod callback;
mod codes;
mod conversation;
mod engine;
mod error;
mod grammar;
mod kept;
mod log;
mod memory;
mod message;
mod mirror;
mod parser;
mod queue;
mod reports;
mod sampling;
mod session;
mod tokenizer;

pub use callback::Progress;
pub use codes::{
    Alarms, Backend, Canary, ChatEncoder, Code, Drafter, Finish, GrammarKind, LogLevel,
    ProgressPhase, ProgressUnit, ReuseLimit, Role, ThinkingMode, ToolChoice,
};
pub use conversation::{Conversation, Events};
pub use engine::{create_group_id, list_devices, serve_group, Engine, EngineOptions, GroupOptions};
pub use error::{Error, Result};
pub use grammar::{Grammar, ToolOptions};
pub use kept::KeptConversations;
pub use log::{clear_log, set_log};
pub use message::{render_text, ChatOptions, Message, ToolCall};
pub use parser::{Event, Parser, ParserOptions};
pub use queue::{Answer, NextEvent, Outcome, Queue, QueueOptions, Request};
pub use reports::{
    Device, DeviceInfo, EngineIdentity, EngineInfo, EngineMetrics, Stats, SyncResult,
};
pub use sampling::Sampling;
pub use session::{
    AllowedTokens, CancelHandle, LogProbs, Session, SessionOptions, Step, SyncOptions,
};
pub use tokenizer::Tokenizer;

/// The library's version, as in "0.1.0".
pub fn version() -> &'static str {
    // Safety: static storage.
    unsafe { memory::static_str(dsv4_sys::dsv4_get_version()) }
}

/// One line: version, commit, compiler, backends and the instruction set in use.
pub fn build_info() -> &'static str {
    // Safety: static storage.
    unsafe { memory::static_str(dsv4_sys::dsv4_get_build_info()) }
}
