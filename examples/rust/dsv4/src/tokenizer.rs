// SPDX-License-Identifier: Apache-2.0
use crate::engine::{Engine, EngineHandle};
use crate::error::{check, check_abi, Result};
use crate::memory;
use crate::message::ChatOptions;
use dsv4_sys as sys;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

enum Owner {
    Caller,
    /// A view into this engine, which it keeps open.
    Engine(#[allow(dead_code)] Arc<EngineHandle>),
}

/// Text to token ids and back. Threads may share it.
pub struct Tokenizer {
    raw: NonNull<sys::dsv4_tokenizer>,
    owner: Owner,
}

// Safety: all functions on an open tokenizer are concurrent.
unsafe impl Send for Tokenizer {}
unsafe impl Sync for Tokenizer {}

impl Drop for Tokenizer {
    fn drop(&mut self) {
        if let Owner::Caller = self.owner {
            // Safety: owned, and closed once.
            unsafe { sys::dsv4_tokenizer_close(self.raw.as_ptr()) }
        }
    }
}

impl Tokenizer {
    /// Opens a tokenizer.json, or that of a model folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer> {
        check_abi()?;
        let path = memory::c_path(path.as_ref())?;
        let mut raw = std::ptr::null_mut();
        // Safety: all pointers are valid during the call.
        check(|error| unsafe { sys::dsv4_tokenizer_open(path.as_ptr(), &mut raw, error) })?;
        Ok(Tokenizer { raw: NonNull::new(raw).expect("a tokenizer"), owner: Owner::Caller })
    }

    pub(crate) fn of_engine(raw: NonNull<sys::dsv4_tokenizer>, engine: &Engine) -> Tokenizer {
        Tokenizer { raw, owner: Owner::Engine(engine.handle()) }
    }

    pub(crate) fn as_ptr(&self) -> *const sys::dsv4_tokenizer {
        self.raw.as_ptr()
    }

    /// Text from users: no token of the result is a control token.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        self.encode_flags(text, sys::DSV4_ENCODE_PLAIN)
    }

    /// Trusted text: markers in it become control tokens.
    pub fn encode_with_added_tokens(&self, text: &str) -> Result<Vec<i32>> {
        self.encode_flags(text, sys::DSV4_ENCODE_ADDED_TOKENS)
    }

    fn encode_flags(&self, text: &str, flags: u32) -> Result<Vec<i32>> {
        memory::fill(text.len(), |ids, capacity, needed, error| unsafe {
            // Safety: the tokenizer is open, as in all that follows.
            let bytes = memory::text_pointer(text);
            let raw = self.as_ptr();
            sys::dsv4_tokenizer_encode(raw, bytes, text.len(), flags, ids, capacity, needed, error)
        })
    }

    pub fn decode(&self, ids: &[i32]) -> Result<String> {
        memory::fill_string(8 * ids.len(), |text, capacity, needed, error| unsafe {
            let (raw, count) = (self.as_ptr(), ids.len());
            let ids = memory::pointer(ids);
            sys::dsv4_tokenizer_decode(raw, ids, count, text, capacity, needed, error)
        })
    }

    /// The bytes of one token, which may be a part of a character.
    pub fn token_bytes(&self, id: i32) -> Result<Vec<u8>> {
        memory::fill::<u8>(32, |bytes, capacity, needed, error| unsafe {
            let raw = self.as_ptr();
            sys::dsv4_tokenizer_get_token_bytes(raw, id, bytes.cast(), capacity, needed, error)
        })
    }

    /// The id of the control token with exactly this text, as in "</think>".
    pub fn added_token(&self, text: &str) -> Option<i32> {
        let text = memory::c_string("text", text.as_bytes()).ok()?;
        let id = unsafe { sys::dsv4_tokenizer_get_added_token(self.as_ptr(), text.as_ptr()) };
        (id >= 0).then_some(id)
    }

    /// One more than the highest id.
    pub fn vocab_size(&self) -> i32 {
        unsafe { sys::dsv4_tokenizer_get_vocab_size(self.as_ptr()) }
    }

    /// The prompt of a JSON array of messages in the form of OpenAI's chat API. No message can forge
    /// a turn.
    pub fn render(&self, messages: &str, options: &ChatOptions) -> Result<Vec<i32>> {
        options.with_c(|options| {
            memory::fill(1024, |ids, capacity, needed, error| unsafe {
                let (text, length) = (memory::text_pointer(messages), messages.len());
                let raw = self.as_ptr();
                sys::dsv4_chat_render(raw, text, length, options, ids, capacity, needed, error)
            })
        })
    }
}
