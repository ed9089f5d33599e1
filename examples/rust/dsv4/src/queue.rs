// SPDX-License-Identifier: Apache-2.0
use crate::codes::{Code, Finish};
use crate::conversation::Conversation;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::kept::KeptConversations;
use crate::message::{ChatOptions, Message};
use crate::parser::Event;
use crate::reports::Stats;
use crate::session::{CancelHandle, SessionOptions, Step};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

/// A conversation whose last message is to be answered.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub messages: Vec<Message>,
    pub chat: ChatOptions,
    pub session: SessionOptions,
    /// The name under which the conversation is kept; None: it is closed. A kept conversation of this
    /// name and salt is continued: what its messages have in common with these is not computed again.
    pub keep_as: Option<String>,
    /// The kept conversation that this one branches from, if none has the name `keep_as`.
    pub continues: Option<String>,
}

/// Options of a [`Queue`].
#[derive(Clone, Debug, Default)]
pub struct QueueOptions {
    /// The most requests that are answered at once, 1 to the engine's `max_sessions`; None: so many.
    pub sessions: Option<usize>,
    /// The most conversations that are kept, up to the engine's `max_sessions`; None: so many.
    pub kept: Option<usize>,
}

/// What an answer came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// CANCELLED after [`Answer::cancel`], ERROR after an error.
    pub finish: Finish,
    /// The assistant's message, for the next request.
    pub reply: Message,
    /// None if the request never had a session.
    pub stats: Option<Stats>,
}

/// Answers many requests on one engine at once. A thread of its own steps them all in one pass, each
/// with the same results as alone. Requests wait for a session, first come, first served. Where the
/// cache is full, kept conversations are closed, then requests wait until others have ended. A
/// suspended engine and a lost device are resumed.
///
/// Dropping it cancels the answers and waits for the thread.
pub struct Queue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    pub fn new(engine: &Engine, options: &QueueOptions) -> Result<Queue> {
        let most = engine.info()?.max_sessions as usize;
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            wake: Condvar::new(),
            handles: Mutex::default(),
            kept: KeptConversations::new(options.kept.map_or(most, |kept| kept.min(most))),
        });
        let mut worker = Worker {
            engine: engine.clone(),
            max_sessions: most,
            sessions: options.sessions.map_or(most, |sessions| sessions.clamp(1, most)),
            shared: shared.clone(),
            entries: Vec::new(),
        };
        let thread = thread::Builder::new()
            .name("dsv4-queue".to_string())
            .spawn(move || worker.run())
            .map_err(|error| Error::invalid("", format!("no thread: {error}")))?;
        Ok(Queue { shared, thread: Some(thread) })
    }

    /// Never blocks; what is wrong with the request, its answer says.
    pub fn submit(&self, request: Request) -> Answer {
        let cell = Arc::new(Cell::default());
        lock(&self.shared.inbox).requests.push((request, cell.clone()));
        self.shared.wake.notify_all();
        Answer { cell, shared: self.shared.clone() }
    }

    /// The conversations of requests with `keep_as`. The host may add to them.
    pub fn kept(&self) -> &KeptConversations {
        &self.shared.kept
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        lock(&self.shared.inbox).closed = true;
        self.shared.wake.notify_all();
        self.shared.stop_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Answers, which may live on, share them.
        while self.shared.kept.drop_oldest(None) {}
    }
}

/// The events of an answer, as they are computed. As an [`Iterator`] it blocks; [`Answer::poll_next`]
/// is what a `Stream` needs, and [`Answer::next_event`] a future, for any executor. The last item is an
/// error if the request failed.
///
/// Dropping it cancels the request.
pub struct Answer {
    cell: Arc<Cell>,
    shared: Arc<Shared>,
}

impl Answer {
    /// Ends the answer early. It keeps its text.
    pub fn cancel(&self) {
        let mut state = lock(&self.cell.state);
        state.cancelled = true;
        if let Some(handle) = &state.handle {
            handle.stop();
        }
        drop(state);
        let _inbox = lock(&self.shared.inbox);
        self.shared.wake.notify_all();
    }

    /// The next event, without waiting: with the task to wake where there is none yet.
    pub fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event>>> {
        let mut state = lock(&self.cell.state);
        if let Some(item) = state.items.pop_front() {
            return Poll::Ready(Some(item));
        }
        if state.outcome.is_some() {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// The next event; None after the last one.
    pub fn next_event(&mut self) -> NextEvent<'_> {
        NextEvent(self)
    }

    /// What it came to; None before its last event.
    pub fn outcome(&self) -> Option<Outcome> {
        lock(&self.cell.state).outcome.clone()
    }
}

impl Iterator for Answer {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        let mut state = lock(&self.cell.state);
        loop {
            if let Some(item) = state.items.pop_front() {
                return Some(item);
            }
            if state.outcome.is_some() {
                return None;
            }
            state = self.cell.changed.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }
}

impl std::iter::FusedIterator for Answer {}

impl Drop for Answer {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Of [`Answer::next_event`].
pub struct NextEvent<'a>(&'a mut Answer);

impl Future for NextEvent<'_> {
    type Output = Option<Result<Event>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut *self.0).poll_next(context)
    }
}

// What an answer and the thread share.
#[derive(Default)]
struct Cell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Result<Event>>,
    outcome: Option<Outcome>,
    waker: Option<Waker>,
    cancelled: bool,
    handle: Option<CancelHandle>,
}

impl Cell {
    fn put(&self, events: Vec<Event>, end: Option<(Outcome, Option<Error>)>) {
        let mut state = lock(&self.state);
        state.items.extend(events.into_iter().map(Ok));
        if let Some((outcome, error)) = end {
            state.items.extend(error.map(Err));
            state.outcome = Some(outcome);
            state.handle = None;
        }
        self.changed.notify_all();
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    // Of the sessions that are stepped, for a queue that closes.
    handles: Mutex<Vec<CancelHandle>>,
    kept: KeptConversations,
}

#[derive(Default)]
struct Inbox {
    requests: Vec<(Request, Arc<Cell>)>,
    closed: bool,
}

impl Shared {
    fn stop_all(&self) {
        for handle in lock(&self.handles).iter() {
            handle.stop();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

struct Entry {
    request: Request,
    cell: Arc<Cell>,
    conversation: Option<Conversation>,
    parked: bool, // the cache was full: goes on when another one has ended
    lost: bool,   // the device, since the last token
}

// The thread. Entries are in the order of their requests.
struct Worker {
    engine: Engine,
    max_sessions: usize, // the engine's
    sessions: usize,
    shared: Arc<Shared>,
    entries: Vec<Entry>,
}

impl Worker {
    fn run(&mut self) {
        while self.receive() {
            self.end_where(|entry| lock(&entry.cell.state).cancelled);
            self.open();
            self.step();
        }
        self.end_where(|_| true);
    }

    // Waits for something to do. False if the queue is closed.
    fn receive(&mut self) -> bool {
        let mut inbox = lock(&self.shared.inbox);
        while self.entries.is_empty() && inbox.requests.is_empty() && !inbox.closed {
            inbox = self.shared.wake.wait(inbox).unwrap_or_else(|e| e.into_inner());
        }
        self.entries.extend(inbox.requests.drain(..).map(|(request, cell)| Entry {
            request,
            cell,
            conversation: None,
            parked: false,
            lost: false,
        }));
        !inbox.closed
    }

    // Cancels these.
    fn end_where(&mut self, ends: impl Fn(&Entry) -> bool) {
        for i in (0..self.entries.len()).rev() {
            if ends(&self.entries[i]) {
                self.end(i, Finish::CANCELLED, None);
            }
        }
    }

    fn end(&mut self, i: usize, finish: Finish, error: Option<Error>) {
        let mut entry = self.entries.remove(i);
        let mut events = Vec::new();
        let mut outcome = Outcome { finish, reply: Message::assistant(""), stats: None };
        if let Some(mut conversation) = entry.conversation.take() {
            // No `Answer::cancel` reaches a conversation that is kept.
            let handle = lock(&entry.cell.state).handle.take();
            if let Some(handle) = handle {
                handle.resume();
            }
            let turn = conversation.end_turn();
            if finish == Finish::CANCELLED || error.is_some() {
                events = turn.unwrap_or_default();
            }
            outcome.reply = conversation.reply().clone();
            outcome.stats = conversation.session().stats().ok();
            if let (None, Some(name)) = (&error, entry.request.keep_as.take()) {
                self.shared.kept.put(name, conversation, entry.request.session.cache_salt);
            }
        }
        entry.cell.put(events, Some((outcome, error)));
        for other in &mut self.entries {
            other.parked = false;
        }
    }

    // Opens sessions for those that wait, as far as there are any.
    fn open(&mut self) {
        let mut i = 0;
        while i < self.entries.len() {
            let open = self.entries.iter().filter(|entry| entry.conversation.is_some()).count();
            if self.entries[i].conversation.is_some() {
                i += 1;
                continue;
            }
            if open >= self.sessions {
                return;
            }
            match self.open_one(i, open) {
                Ok(true) => i += 1,
                Ok(false) => return,
                // Sessions of the host's own take the place.
                Err(error) if error.code() == Code::OUT_OF_BLOCKS && open > 0 => return,
                Err(error) => self.end(i, Finish::ERROR, Some(error)),
            }
        }
    }

    // False if the request has to wait for one of the `others`.
    fn open_one(&mut self, i: usize, others: usize) -> Result<bool> {
        let request = &self.entries[i].request;
        let mut conversation = match self.resuming(|| self.take_kept(request))? {
            Some(mut kept) => {
                kept.session_mut().set_sampling(&request.session.sampling)?;
                kept
            }
            None if others > 0 && self.is_full()? => return Ok(false),
            None => self.resuming(|| self.engine.conversation_with(&request.session))?,
        };
        self.resuming(|| conversation.sync(&request.messages, &request.chat))?;
        let entry = &mut self.entries[i];
        let handle = conversation.session().cancel_handle();
        let mut state = lock(&entry.cell.state);
        if state.cancelled {
            handle.stop();
        }
        state.handle = Some(handle);
        entry.conversation = Some(conversation);
        Ok(true)
    }

    // The kept conversation that the request continues, if there is one. Makes room for a session.
    fn take_kept(&self, request: &Request) -> Result<Option<Conversation>> {
        let (kept, salt) = (&self.shared.kept, request.session.cache_salt);
        if let Some(name) = &request.keep_as {
            if let Some(conversation) = kept.take(name, salt) {
                return Ok(Some(conversation));
            }
        }
        let continues = request.continues.as_deref();
        while self.is_full()? && kept.drop_oldest(continues) {}
        match continues {
            Some(name) if self.is_full()? => Ok(kept.take(name, salt)),
            Some(name) => kept.fork(name, salt),
            None => Ok(None),
        }
    }

    fn is_full(&self) -> Result<bool> {
        Ok(self.engine.metrics()?.sessions as usize >= self.max_sessions)
    }

    // Makes the call again where it needs the engine to be resumed.
    fn resuming<T>(&self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        match call() {
            Err(error) if needs_resume(&error) => {
                self.engine.resume()?;
                call()
            }
            result => result,
        }
    }

    fn step(&mut self) {
        if self.entries.iter().any(|entry| entry.parked) && !self.shared.kept.is_empty() {
            // Their part of the cache is for those that compute.
            while self.shared.kept.drop_oldest(None) {}
            for entry in &mut self.entries {
                entry.parked = false;
            }
        }
        let mut batch: Vec<usize> = Vec::new();
        let mut conversations: Vec<&mut Conversation> = Vec::new();
        let mut handles = Vec::new();
        for (i, entry) in self.entries.iter_mut().enumerate() {
            if let (Some(conversation), false) = (&mut entry.conversation, entry.parked) {
                batch.push(i);
                handles.push(conversation.session().cancel_handle());
                conversations.push(conversation);
            }
        }
        if batch.is_empty() {
            // No room for any: the last one makes it for the others.
            if let Some(i) = self.entries.iter().rposition(|entry| entry.parked) {
                let message = "the cache has no room for another token of this request";
                self.end(i, Finish::ERROR, Some(Error::full(message)));
            }
            return;
        }
        *lock(&self.shared.handles) = handles;
        if lock(&self.shared.inbox).closed {
            return;
        }
        let outcomes = self.engine.step_conversations(&mut conversations);
        lock(&self.shared.handles).clear();
        let outcomes = outcomes.unwrap_or_else(|error| vec![Err(error); batch.len()]);
        let mut loss = None;
        // From the last one on, for the numbers of the others to stay.
        for (i, outcome) in batch.into_iter().zip(outcomes).rev() {
            match outcome {
                Ok(step) => self.deliver(i, step),
                Err(error) if error.code() == Code::OUT_OF_BLOCKS => self.entries[i].parked = true,
                Err(error) if error.code() == Code::CANCELLED => {
                    self.end(i, Finish::CANCELLED, None)
                }
                Err(error) if needs_resume(&error) => {
                    let lost = error.code() == Code::DEVICE_LOST;
                    if std::mem::replace(&mut self.entries[i].lost, lost) && lost {
                        self.end(i, Finish::ERROR, Some(error.clone()));
                    }
                    loss = Some(error);
                }
                Err(error) => self.end(i, Finish::ERROR, Some(error)),
            }
        }
        if loss.is_some() {
            if let Err(error) = self.engine.resume() {
                for i in (0..self.entries.len()).rev() {
                    self.end(i, Finish::ERROR, Some(error.clone()));
                }
            }
        }
    }

    fn deliver(&mut self, i: usize, step: Step) {
        let entry = &mut self.entries[i];
        if step.token < 0 {
            return;
        }
        entry.lost = false;
        if let Some(conversation) = &mut entry.conversation {
            let events = conversation.take_events();
            if !events.is_empty() {
                entry.cell.put(events, None);
            }
        }
        if step.finish != Finish::NONE {
            self.end(i, step.finish, None);
        }
    }
}

// A call that fails so can be made again when the engine has been resumed.
fn needs_resume(error: &Error) -> bool {
    matches!(error.code(), Code::DEVICE_LOST | Code::SUSPENDED)
}
