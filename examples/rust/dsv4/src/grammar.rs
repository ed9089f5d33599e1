// SPDX-License-Identifier: Apache-2.0
use crate::codes::ToolChoice;
use crate::error::{check, Result};
use crate::memory;
use dsv4_sys as sys;
use std::ptr::NonNull;
use std::sync::Arc;

/// Which turns a grammar of tools allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOptions {
    pub choice: ToolChoice,
    /// The only tool that may be called.
    pub name: Option<String>,
    /// Parameters are not held to the schemas.
    pub lenient: bool,
}

/// What an output must match, of the engine that opened it. Copies share it, and threads may.
#[derive(Clone, Debug)]
pub struct Grammar(Arc<Handle>);

#[derive(Debug)]
struct Handle(NonNull<sys::dsv4_grammar>);

// Safety: immutable.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // Safety: owned, and closed once.
        unsafe { sys::dsv4_grammar_close(self.0.as_ptr()) }
    }
}

/// Of copies of one.
impl PartialEq for Grammar {
    fn eq(&self, other: &Grammar) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

type Open = unsafe extern "C" fn(
    *const sys::dsv4_engine,
    *const std::os::raw::c_char,
    usize,
    *mut *mut sys::dsv4_grammar,
    *mut *mut sys::dsv4_error,
) -> sys::dsv4_status;

impl Grammar {
    /// Safety: `raw` has no other owner.
    unsafe fn own(raw: *mut sys::dsv4_grammar) -> Grammar {
        Grammar(Arc::new(Handle(NonNull::new(raw).expect("a grammar"))))
    }

    /// Safety: the engine is open.
    pub(crate) unsafe fn open(
        open: Open,
        engine: *const sys::dsv4_engine,
        source: &str,
    ) -> Result<Grammar> {
        let mut raw = std::ptr::null_mut();
        let text = memory::text_pointer(source);
        check(|error| open(engine, text, source.len(), &mut raw, error))?;
        Ok(Grammar::own(raw))
    }

    /// Safety: the engine is open.
    pub(crate) unsafe fn open_tools(
        engine: *const sys::dsv4_engine,
        tools: &str,
        options: &ToolOptions,
    ) -> Result<Grammar> {
        let name = memory::c_option("options.name", options.name.as_ref())?;
        let options = sys::dsv4_tool_options {
            choice: options.choice.0,
            name: memory::text_of(&name),
            lenient: options.lenient as i32,
            ..Default::default()
        };
        let mut raw = std::ptr::null_mut();
        let (text, length) = (memory::text_pointer(tools), tools.len());
        check(|error| {
            sys::dsv4_grammar_open_tools(engine, text, length, &options, &mut raw, error)
        })?;
        Ok(Grammar::own(raw))
    }

    /// Safety: null, or a grammar that is open.
    pub(crate) unsafe fn share(raw: *const sys::dsv4_grammar) -> Option<Grammar> {
        let mut shared = std::ptr::null_mut();
        check(|error| sys::dsv4_grammar_share(raw, &mut shared, error)).ok()?;
        Some(Grammar::own(shared))
    }

    pub(crate) fn as_ptr(&self) -> *const sys::dsv4_grammar {
        self.0 .0.as_ptr()
    }
}
