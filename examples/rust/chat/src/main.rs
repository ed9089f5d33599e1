// SPDX-License-Identifier: Apache-2.0
//! usage: dsv4-rust-chat MODEL_DIR [QUESTION]
//! Answers the question, or each line of standard input as one conversation. The model's text alone
//! goes to standard output.

use dsv4::{ChatOptions, Conversation, Engine, EngineOptions, Event, Message};
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

fn answer(
    conversation: &mut Conversation,
    messages: &mut Vec<Message>,
    question: &str,
) -> Result<(), Box<dyn Error>> {
    messages.push(Message::user(question));
    conversation.sync(messages, &ChatOptions::default())?;
    let mut out = io::stdout().lock();
    for event in conversation.events() {
        if let Event::Text(text) = event? {
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
    }
    writeln!(out)?;
    messages.push(conversation.reply().clone());
    Ok(())
}

fn chat(model: &str, question: Option<&str>) -> Result<(), Box<dyn Error>> {
    let engine = Engine::open(model, &EngineOptions::default())?;
    let (mut conversation, mut messages) = (engine.conversation()?, Vec::new());
    if let Some(question) = question {
        return answer(&mut conversation, &mut messages, question);
    }
    let mut lines = io::stdin().lock().lines();
    loop {
        eprint!("> ");
        let line = match lines.next() {
            None => break,
            Some(line) => line?,
        };
        if !line.trim().is_empty() {
            answer(&mut conversation, &mut messages, &line)?;
        }
    }
    eprintln!();
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [model] => chat(model, None),
        [model, question] => chat(model, Some(question)),
        _ => {
            eprintln!("usage: dsv4-rust-chat MODEL_DIR [QUESTION]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
