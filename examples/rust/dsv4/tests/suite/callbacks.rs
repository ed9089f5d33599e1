// SPDX-License-Identifier: Apache-2.0
//! Closures that the library calls: what they are told, what they decide, and their panics.
use crate::{continued, long_prompt, model, open, prompt, TemporaryFile};
use dsv4::{Code, Engine, EngineOptions, LogLevel, Progress, ProgressPhase};
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

/// What `run` panics with.
fn panic_of<T>(run: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(run)).err().expect("a panic");
    payload.downcast_ref::<&str>().expect("a text").to_string()
}

fn panics(_: Progress) -> ControlFlow<()> {
    panic!("by progress")
}

#[test]
fn opening_tells_its_progress_and_can_be_cancelled() {
    let mut last = None;
    let options = EngineOptions::default();
    Engine::open_with_progress(model(), &options, |progress| {
        last = Some(progress);
        ControlFlow::Continue(())
    })
    .unwrap();
    let last = last.unwrap();
    assert_eq!((last.phase, last.done), (ProgressPhase::LOAD, last.total));

    let cancelled = Engine::open_with_progress(model(), &options, |_| ControlFlow::Break(()));
    assert_eq!(cancelled.err().unwrap().code(), Code::CANCELLED);
}

#[test]
fn panics_go_around_c() {
    let options = EngineOptions::default();
    assert_eq!(panic_of(|| Engine::open_with_progress(model(), &options, panics)), "by progress");
    let engine = open();
    let mut session = engine.session().unwrap();
    session.sync(&long_prompt()).unwrap();
    assert_eq!(panic_of(|| session.prefill_with_progress(0, panics)), "by progress");

    let tokens = prompt(&engine);
    session.sync(&tokens).unwrap();
    let expected = continued(&mut session, 4);
    session.rewind(tokens.len() as i64).unwrap();
    let file = TemporaryFile::new("panic");
    assert_eq!(panic_of(|| session.save_with_progress(&file.0, panics)), "by progress");
    assert!(!file.0.exists());

    // The session is none the worse for it.
    assert_eq!(continued(&mut session, 4), expected);
}

#[test]
fn the_log_is_heard_until_it_is_cleared() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = lines.clone();
    dsv4::set_log(LogLevel::INFO, move |level, text| {
        seen.lock().unwrap().push((level, text.to_string()));
        panic!("dropped")
    });
    open();
    dsv4::clear_log();
    // Other tests log, too, at the same time.
    let heard = lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    assert!(heard.iter().any(|(_, text)| text.contains("backend cpu")), "{heard:?}");
    assert!(heard.iter().all(|(level, _)| *level == LogLevel::INFO));
    assert_eq!(Arc::strong_count(&lines), 1);
}
