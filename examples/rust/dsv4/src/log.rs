// SPDX-License-Identifier: Apache-2.0
//! The library's log, which is silent until it is set.

use crate::codes::LogLevel;
use crate::memory;
use dsv4_sys as sys;
use std::cell::Cell;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Mutex;

type LogFn = Box<dyn Fn(LogLevel, &str) + Send + Sync>;

// What the library calls now; a thin pointer needs the second box.
static CURRENT: Mutex<Option<Box<LogFn>>> = Mutex::new(None);

thread_local! {
    static LOGGING: Cell<bool> = const { Cell::new(false) };
}

/// Gives the process's messages up to `level` to `log`, on whatever thread logs. A panic in `log` is
/// dropped. When this returns, no call of the one before is running or will follow.
///
/// # Panics
/// When called by `log` itself.
pub fn set_log(level: LogLevel, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) {
    replace(level, Some(Box::new(Box::new(log))));
}

/// Silences the log.
///
/// # Panics
/// When called by the closure of [`set_log`].
pub fn clear_log() {
    replace(LogLevel::ERROR, None);
}

fn replace(level: LogLevel, log: Option<Box<LogFn>>) {
    assert!(!LOGGING.with(Cell::get), "the log was set by what it calls");
    let mut current = CURRENT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Safety: `log` is kept until the library has let go of it, which it has when this returns.
    unsafe {
        match &log {
            Some(log) => {
                let user: *const LogFn = &**log;
                sys::dsv4_log_set_callback(Some(write), user as *mut c_void, level.0)
            }
            None => sys::dsv4_log_set_callback(None, std::ptr::null_mut(), level.0),
        }
    }
    *current = log;
}

unsafe extern "C" fn write(user: *mut c_void, level: sys::dsv4_log_level, text: *const c_char) {
    let log = &*user.cast::<LogFn>();
    // The call that logs is none that could take a panic up again.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let text = memory::string(text);
        let before = LOGGING.try_with(|logging| logging.replace(true)).unwrap_or(false);
        let result = catch_unwind(AssertUnwindSafe(|| log(LogLevel(level), &text)));
        let _ = LOGGING.try_with(|logging| logging.set(before));
        drop(result);
    }));
}
