// SPDX-License-Identifier: Apache-2.0
use crate::callback::{self, Progress, ProgressFn};
use crate::codes::Finish;
use crate::engine::EngineHandle;
use crate::error::{check, Result};
use crate::memory;
use crate::mirror::filled;
use crate::reports::{Stats, SyncResult};
use crate::sampling::Sampling;
use dsv4_sys as sys;
use std::ops::ControlFlow;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

/// How a session is opened.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    pub sampling: Sampling,
    /// The session shares prefixes with sessions of the same salt alone.
    pub cache_salt: u64,
}

impl SessionOptions {
    /// Calls `use_it` with the struct of C, which borrows from `self`.
    pub(crate) fn with_c<T>(
        &self,
        use_it: impl FnOnce(*const sys::dsv4_session_options) -> T,
    ) -> T {
        self.sampling.with_c(|sampling| {
            use_it(&sys::dsv4_session_options {
                sampling,
                cache_salt: self.cache_salt,
                ..Default::default()
            })
        })
    }
}

/// How [`Session::sync`] is to keep log-probabilities of the prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncOptions {
    /// How many of the most likely tokens at each position.
    pub log_probs_count: i32,
    /// From this position on; 0: none.
    pub log_probs_begin: i64,
}

/// What one step added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// -1: none yet, of [`Engine::step`] alone.
    ///
    /// [`Engine::step`]: crate::Engine::step
    pub token: i32,
    /// NONE while the turn continues.
    pub finish: Finish,
    /// What became complete with this token.
    pub text: String,
}

impl Step {
    /// Safety: its text is valid.
    pub(crate) unsafe fn from_c(result: sys::dsv4_step_result) -> Step {
        Step {
            token: result.token,
            finish: Finish(result.finish),
            text: memory::counted_string(result.text, result.text_length.into()),
        }
    }
}

/// Natural log-probabilities at one position.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbs {
    pub token: f32,
    /// The most likely tokens, most likely first.
    pub top: Vec<(i32, f32)>,
}

/// The tokens that may come next, all of them at first.
#[derive(Clone, Debug)]
pub struct AllowedTokens(Vec<u32>);

impl AllowedTokens {
    /// All tokens of a vocabulary: see `EngineInfo::vocab_size`.
    pub fn new(vocab_size: i32) -> AllowedTokens {
        AllowedTokens(vec![u32::MAX; (vocab_size as usize + 31) / 32])
    }

    pub fn forbid(&mut self, token: i32) {
        self.0[token as usize / 32] &= !(1 << (token % 32));
    }

    pub fn allow_only(&mut self, tokens: &[i32]) {
        self.0.fill(0);
        for token in tokens {
            self.0[*token as usize / 32] |= 1 << (token % 32);
        }
    }
}

struct RawSession(NonNull<sys::dsv4_session>);

// Safety: a session may move between threads; other threads only cancel it, which is concurrent.
unsafe impl Send for RawSession {}

type Cancellable = Arc<Mutex<Option<RawSession>>>;

fn lock(session: &Cancellable) -> MutexGuard<'_, Option<RawSession>> {
    session.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Stops what a session computes, from any thread; harmless when nothing runs, and when the session
/// is gone.
#[derive(Clone)]
pub struct CancelHandle(Cancellable);

impl CancelHandle {
    /// The call that runs now fails with CANCELLED within one layer's time, and so do those that begin
    /// later, until [`CancelHandle::resume`].
    pub fn stop(&self) {
        self.set_stopped(1)
    }

    /// Takes [`CancelHandle::stop`] back.
    pub fn resume(&self) {
        self.set_stopped(0)
    }

    fn set_stopped(&self, stopped: i32) {
        if let Some(session) = &*lock(&self.0) {
            // Safety: it is open while the lock is held.
            unsafe { sys::dsv4_session_set_stopped(session.0.as_ptr(), stopped) }
        }
    }
}

/// One mutable timeline of tokens. Moves between threads, and is used by one at a time.
pub struct Session {
    raw: NonNull<sys::dsv4_session>,
    cancellable: Cancellable,
    engine: Arc<EngineHandle>,
}

// Safety: a session belongs to no thread; it is no Sync, because calls on it exclude each other.
unsafe impl Send for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        let mut session = lock(&self.cancellable);
        *session = None;
        // Safety: owned, and closed once: no other thread can cancel it any more. The engine is dropped
        // after it.
        unsafe { sys::dsv4_session_close(self.raw.as_ptr()) }
    }
}

impl Session {
    /// Takes over what the library opened, not NULL.
    pub(crate) fn own(raw: *mut sys::dsv4_session, engine: Arc<EngineHandle>) -> Session {
        let raw = NonNull::new(raw).expect("a session");
        let cancellable = Arc::new(Mutex::new(Some(RawSession(raw))));
        Session { raw, cancellable, engine }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::dsv4_session {
        self.raw.as_ptr()
    }

    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle(self.cancellable.clone())
    }

    /// Another session that continues like this one, allowed tokens included; rows are shared, not copied.
    pub fn fork(&mut self) -> Result<Session> {
        let mut fork = std::ptr::null_mut();
        // Safety: open and exclusive, as in all that follows.
        check(|error| unsafe { sys::dsv4_session_fork(self.as_ptr(), &mut fork, error) })?;
        Ok(Session::own(fork, self.engine.clone()))
    }

    /// Replaces the sampling parameters from the next token on.
    pub fn set_sampling(&mut self, sampling: &Sampling) -> Result<()> {
        sampling.with_c(|sampling| {
            check(|error| unsafe { sys::dsv4_session_set_sampling(self.as_ptr(), sampling, error) })
        })
    }

    /// Restricts the next token, and it alone: a step, a sync and a rewind remove it. Drafts pause.
    pub fn set_allowed(&mut self, allowed: &AllowedTokens) -> Result<()> {
        self.set_allowed_words(&allowed.0)
    }

    /// Allows all tokens again.
    pub fn allow_all(&mut self) -> Result<()> {
        self.set_allowed_words(&[])
    }

    fn set_allowed_words(&mut self, words: &[u32]) -> Result<()> {
        check(|error| unsafe {
            let (session, pointer) = (self.as_ptr(), memory::pointer(words));
            sys::dsv4_session_set_allowed(session, pointer, words.len(), error)
        })
    }

    /// Makes the timeline equal to the whole list; rows of what is known already are kept. Computes
    /// nothing.
    pub fn sync(&mut self, tokens: &[i32]) -> Result<SyncResult> {
        self.sync_with(tokens, SyncOptions::default())
    }

    pub fn sync_with(&mut self, tokens: &[i32], options: SyncOptions) -> Result<SyncResult> {
        let options = sys::dsv4_sync_options {
            log_probs_count: options.log_probs_count,
            log_probs_begin: options.log_probs_begin,
            ..Default::default()
        };
        let (ids, count) = (memory::pointer(tokens), tokens.len());
        // Safety: no pointer in the result.
        unsafe {
            filled(|result, error| {
                sys::dsv4_session_sync(self.as_ptr(), ids, count, &options, result, error)
            })
        }
    }

    /// Goes back to the first `position` tokens; returns how many are to be computed again.
    pub fn rewind(&mut self, position: i64) -> Result<i64> {
        let mut pending = 0;
        check(|error| unsafe {
            sys::dsv4_session_rewind(self.as_ptr(), position, &mut pending, error)
        })?;
        Ok(pending)
    }

    /// Computes up to `max_tokens` pending tokens, 0: all. Returns how many are left.
    pub fn prefill(&mut self, max_tokens: i64) -> Result<i64> {
        self.prefill_it(max_tokens, None)
    }

    pub fn prefill_with_progress(
        &mut self,
        max_tokens: i64,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<i64> {
        self.prefill_it(max_tokens, Some(&mut progress))
    }

    fn prefill_it(&mut self, max_tokens: i64, mut report: Option<ProgressFn<'_>>) -> Result<i64> {
        let (progress, user) = callback::progress(&mut report);
        let mut pending = 0;
        check(|error| unsafe {
            let session = self.as_ptr();
            sys::dsv4_session_prefill(session, max_tokens, progress, user, &mut pending, error)
        })?;
        Ok(pending)
    }

    /// Computes what is pending, chooses one token and appends it.
    pub fn step(&mut self) -> Result<Step> {
        let mut result = sys::dsv4_step_result::default();
        check(|error| unsafe {
            sys::dsv4_session_step(
                self.as_ptr(), None, std::ptr::null_mut(), &mut result, error,
            )
        })?;
        // Safety: the text lives until the next call on the session.
        Ok(unsafe { Step::from_c(result) })
    }

    /// The timeline.
    pub fn tokens(&self) -> Result<&[i32]> {
        let mut tokens = std::ptr::null();
        let mut count = 0;
        check(|error| unsafe {
            sys::dsv4_session_get_tokens(self.as_ptr(), &mut tokens, &mut count, error)
        })?;
        // Safety: a view until the next call that needs `&mut self`.
        Ok(unsafe { memory::slice(tokens, count) })
    }

    /// Of the last token when `Sampling::log_probs` was set, or of the prompt as the last sync asked.
    pub fn log_probs(&self, position: i64) -> Result<LogProbs> {
        const MOST: usize = 20;
        let (mut log_prob, mut count) = (0.0, 0);
        let (mut tokens, mut values) = ([0; MOST], [0.0; MOST]);
        check(|error| unsafe {
            sys::dsv4_session_get_log_probs(
                self.as_ptr(),
                position,
                &mut log_prob,
                tokens.as_mut_ptr(),
                values.as_mut_ptr(),
                MOST,
                &mut count,
                error,
            )
        })?;
        let top = tokens.into_iter().zip(values).take(count).collect();
        Ok(LogProbs { token: log_prob, top })
    }

    pub fn stats(&self) -> Result<Stats> {
        // Safety: no pointer in it.
        unsafe { filled(|stats, error| sys::dsv4_session_get_stats(self.as_ptr(), stats, error)) }
    }

    /// Saves timeline, rows, states and logits to a file, which appears when it is whole.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_it(path.as_ref(), None)
    }

    pub fn save_with_progress(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        self.save_it(path.as_ref(), Some(&mut progress))
    }

    fn save_it(&self, path: &Path, mut report: Option<ProgressFn<'_>>) -> Result<()> {
        let path = memory::c_path(path)?;
        let (progress, user) = callback::progress(&mut report);
        check(|error| unsafe {
            sys::dsv4_session_save(self.as_ptr(), path.as_ptr(), progress, user, error)
        })
    }

    /// The same content as bytes.
    pub fn save_to_memory(&self) -> Result<Vec<u8>> {
        memory::fill(0, |data, capacity, needed, error| unsafe {
            sys::dsv4_session_save_memory(self.as_ptr(), data, capacity, needed, error)
        })
    }

    /// Becomes the session that was saved; sampling and salt stay, but a saved grammar takes
    /// the place of its own. That of a conversation keeps its messages, and takes what their prompt
    /// has in common with what was saved.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.load_it(path.as_ref(), None)
    }

    pub fn load_with_progress(
        &mut self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        self.load_it(path.as_ref(), Some(&mut progress))
    }

    fn load_it(&mut self, path: &Path, mut report: Option<ProgressFn<'_>>) -> Result<()> {
        let path = memory::c_path(path)?;
        let (progress, user) = callback::progress(&mut report);
        check(|error| unsafe {
            sys::dsv4_session_load(self.as_ptr(), path.as_ptr(), progress, user, error)
        })
    }

    pub fn load_from_memory(&mut self, saved: &[u8]) -> Result<()> {
        check(|error| unsafe {
            sys::dsv4_session_load_memory(self.as_ptr(), memory::pointer(saved), saved.len(), error)
        })
    }
}
