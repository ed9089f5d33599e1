// SPDX-License-Identifier: Apache-2.0
use crate::{json, model, open, QUESTION};
use dsv4::{
    Answer, ChatOptions, Code, Engine, EngineOptions, Event, Finish, Message, Queue, Request,
    Sampling, SessionOptions,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

const ANSWER: &str = "The capital of France is Paris.";

fn ask(question: &str) -> Request {
    Request { messages: vec![Message::user(question)], ..Default::default() }
}

/// Up to 40 tokens, others for each seed.
fn story(seed: u64) -> Request {
    let sampling = Sampling {
        temperature: 8.0,
        top_p: 1.0,
        min_p: -1.0,
        seed,
        max_tokens: 40,
        ..Default::default()
    };
    Request {
        session: SessionOptions { sampling, ..Default::default() },
        ..ask("Write a short story about Ralf and a ring.")
    }
}

fn add(text: &mut String, event: &Event) {
    if let Event::Text(part) = event {
        text.push_str(part);
    }
}

fn text_of(answer: &mut Answer) -> String {
    let mut text = String::new();
    for event in answer {
        add(&mut text, &event.unwrap());
    }
    text
}

/// What the request gives without a queue.
fn alone(engine: &Engine, request: &Request) -> String {
    let mut conversation = engine.conversation_with(&request.session).unwrap();
    conversation.sync(&request.messages, &request.chat).unwrap();
    let mut text = String::new();
    for event in conversation.events() {
        add(&mut text, &event.unwrap());
    }
    text
}

/// The executor of these tests: waits on its thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = Box::pin(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn more_requests_than_sessions_each_as_alone() {
    let options = EngineOptions { max_sessions: 2, ..Default::default() };
    let engine = Engine::open(model(), &options).unwrap();
    let expected: Vec<_> = (1..6).map(|seed| alone(&engine, &story(seed))).collect();
    assert_ne!(expected[0], expected[1]);
    let queue = Queue::new(&engine, 0).unwrap();
    let mut answers: Vec<_> = (1..6).map(|seed| queue.submit(story(seed))).collect();
    for (answer, expected) in answers.iter_mut().zip(expected) {
        assert_eq!(text_of(answer), expected);
        let outcome = answer.outcome().unwrap();
        assert_eq!(outcome.reply.content, expected);
        assert!(outcome.stats.unwrap().generated_tokens > 0);
    }
    let mut answer = queue.submit(ask(QUESTION));
    assert_eq!(text_of(&mut answer), ANSWER);
    assert_eq!(answer.outcome().unwrap().finish, Finish::STOP);
}

#[test]
fn answers_are_async_streams() {
    let engine = open();
    let queue = Queue::new(&engine, 0).unwrap();
    let texts = block_on(async {
        let (mut first, mut second) = (queue.submit(ask(QUESTION)), queue.submit(ask(QUESTION)));
        let mut texts = [String::new(), String::new()];
        while let Some(event) = first.next_event().await {
            add(&mut texts[0], &event.unwrap());
        }
        // As a stream is polled.
        let next = |context: &mut Context<'_>| Pin::new(&mut second).poll_next(context);
        let mut stream = PollFn(next);
        while let Some(event) = (&mut stream).await {
            add(&mut texts[1], &event.unwrap());
        }
        texts
    });
    assert_eq!(texts, [ANSWER, ANSWER]);
}

struct PollFn<F>(F);

impl<T, F: FnMut(&mut Context<'_>) -> Poll<T> + Unpin> Future for PollFn<F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        (self.0)(context)
    }
}

#[test]
fn a_request_fails_or_is_cancelled_alone() {
    let engine = open();
    let queue = Queue::new(&engine, 0).unwrap();
    let mut good = queue.submit(ask(QUESTION));
    let mut bad = queue.submit(Request::default());
    let mut long = story(3);
    long.session.sampling.max_tokens = 3000;
    long.session.sampling.banned_tokens = vec![engine.info().unwrap().eos_token];
    let mut cancelled = queue.submit(long.clone());
    drop(queue.submit(long));
    assert_eq!(bad.next().unwrap().unwrap_err().code(), Code::INVALID_ARGUMENT);
    assert!(bad.next().is_none());
    assert_eq!(bad.outcome().unwrap().finish, Finish::ERROR);
    assert_eq!(text_of(&mut good), ANSWER);
    let mut text = String::new();
    add(&mut text, &cancelled.next().unwrap().unwrap());
    cancelled.cancel();
    text += &text_of(&mut cancelled);
    let outcome = cancelled.outcome().unwrap();
    assert_eq!(outcome.finish, Finish::CANCELLED);
    assert_eq!(outcome.reply.content, text);
    assert!(!text.is_empty());
    // The conversation goes on.
    let mut messages = vec![Message::user("Tell a story."), outcome.reply];
    messages.push(Message::user(QUESTION));
    let mut next = queue.submit(Request { messages, ..Default::default() });
    assert!(text_of(&mut next).contains("Paris"));
}

#[test]
fn a_suspended_engine_is_resumed_and_a_busy_queue_closes() {
    let engine = open();
    let queue = Queue::new(&engine, 2).unwrap();
    engine.suspend(None).unwrap();
    assert_eq!(text_of(&mut queue.submit(ask(QUESTION))), ANSWER);

    let mut answers: Vec<_> = (0..4).map(|seed| queue.submit(story(seed))).collect();
    assert!(answers[0].next().is_some());
    drop(queue);
    for answer in &mut answers {
        let _ = text_of(answer);
        assert_eq!(answer.outcome().unwrap().finish, Finish::CANCELLED);
    }
    // The engine is free again.
    let mut conversation = engine.conversation().unwrap();
    conversation.sync_json(&json(QUESTION), &ChatOptions::default()).unwrap();
    assert!(conversation.step().is_ok());
}

#[test]
fn a_full_cache_ends_the_last_request_if_none_can_go_on() {
    let options = EngineOptions {
        max_sessions: 4,
        context_tokens: 640,
        cache_tokens: 1024, // 4 blocks of 256; each request comes to need 3
        ..Default::default()
    };
    let engine = Engine::open(model(), &options).unwrap();
    let queue = Queue::new(&engine, 0).unwrap();
    let request = |seed| {
        let mut request = story(seed);
        request.session.sampling.forced_tokens = [261, 1481].repeat(200);
        request.session.sampling.max_tokens = 400;
        let lines = "The ring lay at the door. ".repeat(22);
        request.messages[0].content = format!("{seed} {lines}");
        request
    };
    let expected = alone(&engine, &request(1));
    let mut answers: Vec<_> = (1..5).map(|seed| queue.submit(request(seed))).collect();
    assert_eq!(text_of(&mut answers[0]), expected);
    let error = answers[3].by_ref().last().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::OUT_OF_BLOCKS);
    // There is room again.
    assert_eq!(text_of(&mut queue.submit(ask(QUESTION))), ANSWER);
}
