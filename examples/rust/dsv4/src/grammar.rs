// SPDX-License-Identifier: Apache-2.0
use crate::codes::{GrammarKind, ToolChoice};
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
    /// Constraints of schemas that are not supported are left out.
    pub lenient: bool,
    /// UNSUPPORTED if compiling takes more than about 20 ms.
    pub quick: bool,
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

impl Grammar {
    /// Safety: `raw` has no other owner.
    unsafe fn own(raw: *mut sys::dsv4_grammar) -> Grammar {
        Grammar(Arc::new(Handle(NonNull::new(raw).expect("a grammar"))))
    }

    /// Safety: the engine is open.
    pub(crate) unsafe fn open(
        engine: *const sys::dsv4_engine,
        kind: GrammarKind,
        source: &str,
    ) -> Result<Grammar> {
        let mut raw = std::ptr::null_mut();
        let text = memory::text_pointer(source);
        check(|error| sys::dsv4_grammar_open(engine, kind.0, text, source.len(), &mut raw, error))?;
        Ok(Grammar::own(raw))
    }

    /// Safety: the engine is open.
    pub(crate) unsafe fn open_answer(
        engine: *const sys::dsv4_engine,
        tools: Option<&str>,
        schema: Option<&str>,
        options: &ToolOptions,
    ) -> Result<Grammar> {
        let name = memory::c_option("options.name", options.name.as_ref())?;
        let options = sys::dsv4_tool_options {
            choice: options.choice.0,
            name: memory::text_of(&name),
            lenient: options.lenient as i32,
            quick: options.quick as i32,
            ..Default::default()
        };
        let mut raw = std::ptr::null_mut();
        let text_of = |text: Option<&str>| text.map_or(std::ptr::null(), memory::text_pointer);
        let length_of = |text: Option<&str>| text.map_or(0, str::len);
        check(|error| {
            sys::dsv4_grammar_open_answer(
                engine,
                text_of(tools),
                length_of(tools),
                text_of(schema),
                length_of(schema),
                &options,
                &mut raw,
                error,
            )
        })?;
        Ok(Grammar::own(raw))
    }

    /// What the grammar does not enforce of its schemas: a JSON array of places and reasons.
    pub fn unenforced_json(&self) -> Result<String> {
        memory::fill_string(256, |json, capacity, needed, error| unsafe {
            sys::dsv4_grammar_get_unenforced(self.as_ptr(), json, capacity, needed, error)
        })
    }

    pub(crate) fn as_ptr(&self) -> *const sys::dsv4_grammar {
        self.0 .0.as_ptr()
    }
}
