// SPDX-License-Identifier: Apache-2.0
use crate::grammar::Grammar;
use crate::memory::{counted_string, pointer, slice, string};
use dsv4_sys as sys;
use std::os::raw::c_char;

/// How a session chooses the next token. 0, and empty, is off; [`Engine::sampling`] gives the
/// model's own.
///
/// [`Engine::sampling`]: crate::Engine::sampling
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// 0: the most likely token.
    pub temperature: f32,
    pub top_k: i32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub seed: u64,
    pub max_tokens: i64,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// Tokens and what is added to their logits.
    pub bias: Vec<(i32, f32)>,
    pub banned_tokens: Vec<i32>,
    /// What the output begins with.
    pub forced_tokens: Vec<i32>,
    pub max_thinking_tokens: i64,
    pub stop_tokens: Vec<i32>,
    pub stop_strings: Vec<String>,
    /// How many of the most likely tokens are kept for [`Session::log_probs`].
    ///
    /// [`Session::log_probs`]: crate::Session::log_probs
    pub log_probs: i32,
    pub draft_tokens: i32,
    /// What the output must match.
    pub grammar: Option<Grammar>,
}

impl Sampling {
    /// Calls `use_it` with the struct of C, which borrows from `self`.
    pub(crate) fn with_c<T>(&self, use_it: impl FnOnce(*const sys::dsv4_sampling) -> T) -> T {
        let (bias_tokens, biases): (Vec<i32>, Vec<f32>) = self.bias.iter().copied().unzip();
        let strings: Vec<*const c_char> =
            self.stop_strings.iter().map(|text| text.as_ptr().cast()).collect();
        let lengths: Vec<u64> = self.stop_strings.iter().map(|text| text.len() as u64).collect();
        use_it(&sys::dsv4_sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
            max_tokens: self.max_tokens,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            bias_tokens: pointer(&bias_tokens),
            biases: pointer(&biases),
            bias_count: self.bias.len() as u64,
            banned_tokens: pointer(&self.banned_tokens),
            banned_count: self.banned_tokens.len() as u64,
            forced_tokens: pointer(&self.forced_tokens),
            forced_count: self.forced_tokens.len() as u64,
            max_thinking_tokens: self.max_thinking_tokens,
            stop_tokens: pointer(&self.stop_tokens),
            stop_token_count: self.stop_tokens.len() as u64,
            stop_strings: pointer(&strings),
            stop_string_lengths: pointer(&lengths),
            stop_string_count: strings.len() as u64,
            log_probs: self.log_probs,
            draft_tokens: self.draft_tokens,
            grammar: self.grammar.as_ref().map_or(std::ptr::null(), Grammar::as_ptr),
            ..Default::default()
        })
    }

    /// Safety: its pointers are valid for their counts.
    pub(crate) unsafe fn from_c(c: &sys::dsv4_sampling) -> Sampling {
        let bias_tokens = slice(c.bias_tokens, c.bias_count as usize);
        let biases = slice(c.biases, c.bias_count as usize);
        let strings = slice(c.stop_strings, c.stop_string_count as usize);
        let stop_string = |i: usize| match c.stop_string_lengths.is_null() {
            true => string(strings[i]),
            false => counted_string(strings[i], *c.stop_string_lengths.add(i)),
        };
        Sampling {
            temperature: c.temperature,
            top_k: c.top_k,
            top_p: c.top_p,
            min_p: c.min_p,
            repetition_penalty: c.repetition_penalty,
            seed: c.seed,
            max_tokens: c.max_tokens,
            presence_penalty: c.presence_penalty,
            frequency_penalty: c.frequency_penalty,
            bias: bias_tokens.iter().copied().zip(biases.iter().copied()).collect(),
            banned_tokens: slice(c.banned_tokens, c.banned_count as usize).to_vec(),
            forced_tokens: slice(c.forced_tokens, c.forced_count as usize).to_vec(),
            max_thinking_tokens: c.max_thinking_tokens,
            stop_tokens: slice(c.stop_tokens, c.stop_token_count as usize).to_vec(),
            stop_strings: (0..strings.len()).map(stop_string).collect(),
            log_probs: c.log_probs,
            draft_tokens: c.draft_tokens,
            grammar: if c.grammar.is_null() { None } else { Grammar::share(c.grammar) },
        }
    }
}
