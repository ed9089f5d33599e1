// SPDX-License-Identifier: Apache-2.0
//! The crate on the bundled model. What the model says is recorded in its gates.json.

mod callbacks;
mod conversation;
mod engine;
mod queue;
mod session;
mod text;
mod threads;

use dsv4::{ChatOptions, Engine, EngineOptions};
use std::path::PathBuf;

pub const QUESTION: &str = "What is the capital of France?";

pub fn model() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../models/dsv4-tiny")
}

pub fn open() -> Engine {
    Engine::open(model(), &EngineOptions::default()).unwrap()
}

/// A user's message as a JSON array; the text needs no escapes.
pub fn json(text: &str) -> String {
    format!(r#"[{{"role": "user", "content": "{text}"}}]"#)
}

pub fn prompt(engine: &Engine) -> Vec<i32> {
    let tokenizer = engine.tokenizer().unwrap();
    tokenizer.render(&json(QUESTION), &ChatOptions::default()).unwrap()
}

/// Tokens without meaning that fill several chunks.
pub fn long_prompt() -> Vec<i32> {
    (0..1500).map(|i| 3 + (i * 37 + i / 11) % 2000).collect()
}

/// Up to `count` tokens with which the session continues.
pub fn continued(session: &mut dsv4::Session, count: usize) -> Vec<i32> {
    let mut tokens = Vec::new();
    while tokens.len() < count {
        let step = session.step().unwrap();
        tokens.push(step.token);
        if step.finish != dsv4::Finish::NONE {
            break;
        }
    }
    tokens
}

/// A file that is gone when the test is over.
pub struct TemporaryFile(pub PathBuf);

impl TemporaryFile {
    pub fn new(name: &str) -> TemporaryFile {
        let name = format!("dsv4-rust-{}-{}", std::process::id(), name);
        TemporaryFile(std::env::temp_dir().join(name))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
