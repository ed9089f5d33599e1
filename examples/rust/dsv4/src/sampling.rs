// SPDX-License-Identifier: Apache-2.0
use crate::grammar::Grammar;
use crate::memory::pointer;
use dsv4_sys as sys;
use std::os::raw::c_char;

/// How a session chooses the next token. 0 is the model's own value, which [`Engine::sampling`]
/// gives.
///
/// [`Engine::sampling`]: crate::Engine::sampling
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// [`Sampling::GREEDY`]: the most likely token.
    pub temperature: f32,
    pub top_k: i32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    /// [`Sampling::RANDOM_SEED`]: another one each time.
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
    /// A temperature: always the most likely token.
    pub const GREEDY: f32 = sys::DSV4_GREEDY;
    /// A seed: a random one is drawn.
    pub const RANDOM_SEED: u64 = sys::DSV4_SEED_RANDOM;

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

    /// Of the values that 0 stands for.
    pub(crate) fn from_c(c: &sys::dsv4_sampling) -> Sampling {
        Sampling {
            temperature: c.temperature,
            top_k: c.top_k,
            top_p: c.top_p,
            min_p: c.min_p,
            repetition_penalty: c.repetition_penalty,
            seed: c.seed,
            max_tokens: c.max_tokens,
            ..Default::default()
        }
    }
}
