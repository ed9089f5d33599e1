// SPDX-License-Identifier: Apache-2.0
use crate::{json, model, open, QUESTION};
use dsv4::{
    Answer, ChatOptions, Code, Engine, EngineOptions, Event, Finish, Message, Queue, QueueOptions,
    Request, Sampling, SessionOptions,
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
    let queue = Queue::new(&engine, &QueueOptions::default()).unwrap();
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
    let queue = Queue::new(&engine, &QueueOptions::default()).unwrap();
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
    let queue = Queue::new(&engine, &QueueOptions::default()).unwrap();
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
    let options = QueueOptions { sessions: Some(2), ..Default::default() };
    let queue = Queue::new(&engine, &options).unwrap();
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
    let queue = Queue::new(&engine, &QueueOptions::default()).unwrap();
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
    let keep_as = Some("kept".to_string());
    let mut kept = queue.submit(Request { keep_as, ..request(2) });
    text_of(&mut kept);
    assert_eq!(kept.outcome().unwrap().finish, Finish::LENGTH);
    assert_eq!(queue.kept().len(), 1);
    // Kept conversations give theirs up.
    let expected = alone(&engine, &request(3));
    let mut answers: Vec<_> = (3..5).map(|seed| queue.submit(request(seed))).collect();
    assert_eq!(text_of(&mut answers[0]), expected);
    assert!(queue.kept().is_empty());
}

#[test]
fn conversations_are_kept_continued_and_branched_from() {
    let options = EngineOptions { max_sessions: 2, ..Default::default() };
    let engine = Engine::open(model(), &options).unwrap();
    let queue = Queue::new(&engine, &QueueOptions::default()).unwrap();
    let answer = |request| {
        let mut answer = queue.submit(request);
        let text = text_of(&mut answer);
        let outcome = answer.outcome().unwrap();
        (text, outcome.reply, outcome.stats.unwrap())
    };
    let named = |name: &str| Some(name.to_string());
    let (_, reply, one) = answer(Request { keep_as: named("1"), ..ask(QUESTION) });
    assert_eq!(queue.kept().len(), 1);
    let mut messages = vec![Message::user(QUESTION), reply];
    messages.push(Message::user("What is the capital of Italy?"));
    let branch = Request {
        messages: messages.clone(),
        keep_as: named("2"),
        continues: named("1"),
        ..Default::default()
    };
    let (text, reply, two) = answer(branch);
    assert_eq!(text, "The capital of Italy is Rome.");
    assert_eq!(two.cached_tokens, one.used_tokens - 1); // the last token was never computed
    assert_eq!(queue.kept().len(), 2);
    let mut other = Request { keep_as: named("1"), ..ask(QUESTION) };
    other.session.cache_salt = 7; // shares nothing
    assert_eq!(answer(other).2.cached_tokens, 0);
    messages.extend([reply, Message::user(QUESTION)]);
    let (text, _, three) = answer(Request { messages, keep_as: named("2"), ..Default::default() });
    assert_eq!(text, ANSWER);
    assert_eq!(three.cached_tokens, two.used_tokens - 1);
    // All sessions are kept: a request takes the place of one, the oldest.
    assert_eq!(queue.kept().len(), 2);
    assert_eq!(answer(ask(QUESTION)).0, ANSWER);
    assert_eq!(queue.kept().len(), 1);
    assert!(queue.kept().take("1", 7).is_none());
    let mut kept = queue.kept().take("2", 0).unwrap();
    assert_eq!(kept.session().stats().unwrap().used_tokens, three.used_tokens);
    // One that the host adds is continued as well, and closed with the queue.
    kept.sync(&[Message::user(QUESTION)], &ChatOptions::default()).unwrap();
    queue.kept().put("host", kept, 0);
    let (text, _, stats) = answer(Request { keep_as: named("host"), ..ask(QUESTION) });
    assert_eq!(text, ANSWER);
    assert!(stats.cached_tokens > 0);
    let last = queue.submit(ask(QUESTION));
    drop(queue);
    drop(last);
    assert_eq!(engine.metrics().unwrap().sessions, 0);
}

#[test]
fn a_cancelled_conversation_is_kept_and_a_failed_one_is_not() {
    let engine = open();
    let options = QueueOptions { sessions: None, kept: Some(1) };
    let queue = Queue::new(&engine, &options).unwrap();
    let keep = |name: &str, request| Request { keep_as: Some(name.to_string()), ..request };
    let mut failed = queue.submit(keep("failed", Request::default()));
    assert!(failed.next().unwrap().is_err());
    assert!(queue.kept().is_empty());
    let mut long = story(3);
    long.session.sampling.max_tokens = 3000;
    long.session.sampling.banned_tokens = vec![engine.info().unwrap().eos_token];
    let mut first = queue.submit(keep("story", long.clone()));
    assert!(first.next().is_some());
    first.cancel();
    text_of(&mut first);
    let outcome = first.outcome().unwrap();
    assert_eq!(outcome.finish, Finish::CANCELLED);
    assert_eq!(queue.kept().len(), 1);
    // A late cancel does not reach the kept conversation.
    first.cancel();
    let mut messages = long.messages;
    messages.extend([outcome.reply, Message::user(QUESTION)]);
    let mut next = queue.submit(keep("story", Request { messages, ..Default::default() }));
    assert!(text_of(&mut next).contains("Paris"));
    assert!(next.outcome().unwrap().stats.unwrap().cached_tokens > 0);
    // No more than `kept` are kept.
    text_of(&mut queue.submit(keep("other", ask(QUESTION))));
    assert_eq!(queue.kept().len(), 1);
    assert!(queue.kept().take("story", 0).is_none());
}
