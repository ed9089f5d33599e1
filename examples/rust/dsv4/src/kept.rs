// SPDX-License-Identifier: Apache-2.0
use crate::conversation::Conversation;
use crate::error::Result;
use std::sync::{Mutex, MutexGuard};

/// Conversations that may continue, by name. They give up their place when a request needs it, the
/// oldest first, and are then computed again as far as the prefix cache lacks them. Any thread.
pub struct KeptConversations {
    most: usize,
    entries: Mutex<Vec<Entry>>, // the oldest first
}

struct Entry {
    name: String,
    cache_salt: u64,
    conversation: Conversation,
}

impl KeptConversations {
    /// Keeps up to `most`.
    pub fn new(most: usize) -> KeptConversations {
        KeptConversations { most, entries: Mutex::default() }
    }

    /// Keeps a conversation, in place of the one with this name.
    pub fn put(&self, name: impl Into<String>, conversation: Conversation, cache_salt: u64) {
        let name = name.into();
        let mut entries = self.lock();
        let (mut dropped, mut left): (Vec<_>, Vec<_>) =
            entries.drain(..).partition(|entry| entry.name == name);
        left.push(Entry { name, cache_salt, conversation });
        dropped.extend(left.drain(..left.len().saturating_sub(self.most)));
        *entries = left;
        drop(entries); // closing takes time
    }

    /// Takes out the conversation of this name and salt, if there is one.
    pub fn take(&self, name: &str, cache_salt: u64) -> Option<Conversation> {
        let mut entries = self.lock();
        let at = find(&entries, name, cache_salt)?;
        Some(entries.remove(at).conversation)
    }

    /// A copy of the conversation of this name and salt, if there is one.
    pub fn fork(&self, name: &str, cache_salt: u64) -> Result<Option<Conversation>> {
        let mut entries = self.lock();
        match find(&entries, name, cache_salt) {
            Some(at) => entries[at].conversation.fork().map(Some),
            None => Ok(None),
        }
    }

    /// Closes the oldest one except those with the name `other`. False if there is none.
    pub fn drop_oldest(&self, other: Option<&str>) -> bool {
        let mut entries = self.lock();
        let dropped = entries
            .iter()
            .position(|entry| other.map_or(true, |other| entry.name != other))
            .map(|at| entries.remove(at));
        drop(entries);
        dropped.is_some()
    }

    /// The number of conversations.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn find(entries: &[Entry], name: &str, cache_salt: u64) -> Option<usize> {
    entries.iter().position(|entry| entry.name == name && entry.cache_salt == cache_salt)
}
