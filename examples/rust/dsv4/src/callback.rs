// SPDX-License-Identifier: Apache-2.0
//! Closures that C calls, and what becomes of their panics.

use crate::codes::{ProgressPhase, ProgressUnit};
use dsv4_sys as sys;
use std::any::Any;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

thread_local! {
    // Callbacks run on the thread of the call that they were given to, so it finds their panic here.
    static PANIC: RefCell<Option<Box<dyn Any + Send>>> = const { RefCell::new(None) };
}

/// Runs a closure below C. `None` after a panic, its own or one that still has to leave C.
pub(crate) fn catch<T>(run: impl FnOnce() -> T) -> Option<T> {
    // Where a thread ends there may be no place for a panic any more: it is then dropped.
    if PANIC.try_with(|panic| panic.borrow().is_some()).unwrap_or(false) {
        return None;
    }
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => Some(value),
        Err(payload) => {
            let _ = PANIC.try_with(|panic| *panic.borrow_mut() = Some(payload));
            None
        }
    }
}

/// Above C: continues a caught panic.
pub(crate) fn resume_panic() {
    if let Ok(Some(payload)) = PANIC.try_with(|panic| panic.borrow_mut().take()) {
        resume_unwind(payload);
    }
}

/// How far a call has come: `done` of `total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub phase: ProgressPhase,
    pub done: u64,
    pub total: u64,
    pub unit: ProgressUnit,
}

/// `Break` cancels the call.
pub(crate) type ProgressFn<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

unsafe extern "C" fn report(
    user: *mut c_void,
    phase: sys::dsv4_progress_phase,
    done: u64,
    total: u64,
    unit: sys::dsv4_progress_unit,
) -> i32 {
    let callback = &mut *user.cast::<ProgressFn>();
    let progress = Progress { phase: ProgressPhase(phase), done, total, unit: ProgressUnit(unit) };
    catch(|| callback(progress)).map_or(1, |flow| flow.is_break() as i32)
}

/// Function and argument for C; they live as long as what `callback` is borrowed from.
pub(crate) fn progress(
    callback: &mut Option<ProgressFn<'_>>,
) -> (sys::dsv4_progress_fn, *mut c_void) {
    match callback {
        None => (None, std::ptr::null_mut()),
        Some(callback) => (Some(report), (callback as *mut ProgressFn<'_>).cast()),
    }
}
