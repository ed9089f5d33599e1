// SPDX-License-Identifier: Apache-2.0
use crate::{continued, long_prompt, open, prompt};
use dsv4::{CancelHandle, Code, Conversation, Engine, Parser, Session, Tokenizer};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

// Who may be sent to another thread, who may be shared, and who must not: for the compiler.
const _: fn() = || {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Engine>();
    is_sync::<Engine>();
    is_send::<Tokenizer>();
    is_sync::<Tokenizer>();
    is_send::<CancelHandle>();
    is_sync::<CancelHandle>();
    is_send::<Session>();
    is_send::<Conversation>();
    is_send::<Parser>();

    // Ambiguous, and so an error, for a type that is Sync.
    trait Ambiguous<A> {
        fn is_not_sync() {}
    }
    struct Sync_;
    impl<T: ?Sized> Ambiguous<()> for T {}
    impl<T: ?Sized + Sync> Ambiguous<Sync_> for T {}
    let _ = <Session as Ambiguous<_>>::is_not_sync;
    let _ = <Conversation as Ambiguous<_>>::is_not_sync;
    let _ = <Parser as Ambiguous<_>>::is_not_sync;
};

#[test]
fn sessions_of_one_engine_run_on_several_threads() {
    let engine = open();
    let tokens = prompt(&engine);
    let mut session = engine.session().unwrap();
    session.sync(&tokens).unwrap();
    let mut fork = session.fork().unwrap();
    let expected = continued(&mut session, 6);
    // A session moves to its thread; the engine is shared.
    let moved = thread::spawn(move || continued(&mut fork, 6));
    let others: Vec<_> = (0..2)
        .map(|_| {
            let (engine, tokens) = (engine.clone(), tokens.clone());
            thread::spawn(move || {
                let mut session = engine.session().unwrap();
                session.sync(&tokens).unwrap();
                continued(&mut session, 6)
            })
        })
        .collect();
    drop(engine);
    assert_eq!(moved.join().unwrap(), expected);
    for other in others {
        assert_eq!(other.join().unwrap(), expected);
    }
}

#[test]
fn a_cancelled_session_goes_on() {
    let engine = open();
    let tokens = long_prompt();
    let mut straight = engine.session().unwrap();
    straight.sync(&tokens).unwrap();
    let expected = continued(&mut straight, 4);

    let options = dsv4::SessionOptions { cache_salt: 1, ..Default::default() };
    let mut session = engine.session_with(&options).unwrap();
    session.sync(&tokens).unwrap();
    let cancel = session.cancel_handle();
    // From within a callback: at the first that is told, of several chunks.
    let own = cancel.clone();
    let error = session.prefill_with_progress(0, move |_| {
        own.stop();
        ControlFlow::Continue(())
    });
    assert_eq!(error.unwrap_err().code(), Code::CANCELLED);
    cancel.resume();

    // From another thread, again and again.
    let over = Arc::new(AtomicBool::new(false));
    let canceller = {
        let (cancel, over) = (cancel.clone(), over.clone());
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                cancel.stop();
                thread::sleep(Duration::from_millis(50));
                cancel.resume();
            }
        })
    };
    let error = loop {
        if let Err(error) = session.prefill(0) {
            break error;
        }
        session.rewind(1).unwrap();
    };
    assert_eq!(error.code(), Code::CANCELLED);
    over.store(true, Ordering::Relaxed);
    canceller.join().unwrap();
    session.sync(&tokens).unwrap();
    assert_eq!(continued(&mut session, 4), expected);

    // Harmless when nothing is left.
    cancel.stop();
    drop(session);
    cancel.stop();
}
