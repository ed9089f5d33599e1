// SPDX-License-Identifier: Apache-2.0
//! What the library reports, copied out of its structs.

use crate::codes::{Alarms, Backend, Canary, Drafter, ReuseLimit};
use crate::error::{check, Result};
use crate::memory;
use dsv4_sys as sys;
use std::os::raw::c_char;

pub(crate) trait FromC<T> {
    /// Safety: a pointer must be to a NUL-terminated text.
    unsafe fn from_c(value: T) -> Self;
}

/// What `call` fills. Safety: as [`FromC::from_c`] of it.
pub(crate) unsafe fn filled<C: Default, T: FromC<C>>(
    call: impl FnOnce(*mut C, *mut *mut sys::dsv4_error) -> sys::dsv4_status,
) -> Result<T> {
    let mut value = C::default();
    check(|error| call(&mut value, error))?;
    Ok(T::from_c(value))
}

macro_rules! same_in_c {
    ($($name:ty)*) => {$(
        impl FromC<$name> for $name {
            unsafe fn from_c(value: $name) -> $name {
                value
            }
        }
    )*};
}
same_in_c!(i32 i64 u64 f64);

impl FromC<i32> for bool {
    unsafe fn from_c(value: i32) -> bool {
        value != 0
    }
}

impl FromC<*const c_char> for String {
    unsafe fn from_c(text: *const c_char) -> String {
        memory::string(text)
    }
}

macro_rules! mirrors {
    ($($(#[$doc:meta])* $name:ident of $c_name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl FromC<sys::$c_name> for $name {
            unsafe fn from_c(value: sys::$c_name) -> $name {
                $name { $($field: <$type>::from_c(value.$field),)* }
            }
        }
    )*};
}

mirrors! {
    /// The effective configuration of an engine and its memory.
    EngineInfo of dsv4_engine_info {
        backend: Backend,
        /// "published", "fp32" or "exact".
        numerics: String,
        threads: i32,
        context_tokens: i64,
        cache_tokens: i64,
        max_sessions: i32,
        prefill_chunk_tokens: i32,
        vocab_size: i32,
        has_tokenizer: bool,
        bos_token: i32,
        eos_token: i32,
        layers: i32,
        weight_bytes: u64,
        cache_bytes: u64,
        workspace_bytes: u64,
        /// "packed", "bf16", "fp8_per_tensor" or "f32".
        cache_format: String,
        max_draft_tokens: i32,
        cache_window_bytes: u64,
        cache_compressed_bytes: u64,
        cache_index_bytes: u64,
        cache_state_bytes: u64,
        device_count: i32,
        step_exchanges: i64,
        token_exchange_bytes: u64,
        device_weight_bytes: u64,
        device_cache_bytes: u64,
        device_workspace_bytes: u64,
        checkpoint_drafter: Drafter,
        drafter: Drafter,
        device_experts: i64,
        host_experts: i64,
        host_weight_bytes: u64,
        token_expert_bytes: u64,
        disk_experts: i64,
        canary: Canary,
        cpu_experts: i32,
        /// Of one session without drafts; 0: not predicted.
        predicted_decode_tokens_per_second: f64,
        /// Of a long prompt; 0: not predicted.
        predicted_prefill_tokens_per_second: f64,
        /// What [`crate::Backend::AUTO`] chose and why not the alternatives; limits that were
        /// lowered to fit.
        backend_reason: String,
        /// That run the second set of kernels; empty: none.
        second_set_operators: String,
    }

    /// What an engine has done since it was opened, and what it holds now.
    EngineMetrics of dsv4_engine_metrics {
        device_lost: bool,
        sessions: i32,
        waiting_requests: i32,
        steps: u64,
        step_seconds: f64,
        step_tokens: u64,
        cancelled_requests: u64,
        failed_requests: u64,
        prompt_tokens: u64,
        reused_tokens: u64,
        prefix_cache_tokens: u64,
        prefilled_tokens: u64,
        generated_tokens: u64,
        draft_steps: u64,
        drafted_tokens: u64,
        accepted_tokens: u64,
        exchanged_bytes: u64,
        window_blocks: i32,
        window_blocks_used: i32,
        window_blocks_cached: i32,
        compressed_kv_blocks: i32,
        compressed_kv_blocks_used: i32,
        compressed_kv_blocks_cached: i32,
        state_slots: i32,
        state_slots_used: i32,
        state_slots_cached: i32,
        suspended: i32,
        alarm_nonfinite_logits: u64,
        alarm_frozen_logits: u64,
        alarm_token_run: u64,
        alarm_bos_run: u64,
        alarm_few_accepted: u64,
        device_expert_reads: u64,
        host_expert_reads: u64,
        host_read_bytes: u64,
        moved_experts: u64,
        disk_expert_reads: u64,
        disk_read_bytes: u64,
        disk_read_seconds: f64,
        device_read_bytes: u64,
        streamed_bytes: u64,
        stream_seconds: f64,
        alarm_canary: u64,
        /// How many run the second set of kernels.
        second_set_operators: u64,
        cpu_expert_reads: u64,
        cpu_read_bytes: u64,
        cpu_seconds: f64,
        device_read_seconds: f64,
        host_read_seconds: f64,
        /// Of one session, without drafts.
        predicted_decode_tokens_per_second: f64,
        /// Of one session that decodes alone; 0 before 256 such tokens.
        measured_decode_tokens_per_second: f64,
    }

    /// The planned memory of one device of an engine.
    DeviceInfo of dsv4_device_info {
        /// Of the backend's devices; -1: of another process of the group.
        index: i32,
        weight_bytes: u64,
        cache_bytes: u64,
        workspace_bytes: u64,
    }

    /// A device that an engine can use.
    Device of dsv4_device {
        /// [`Backend::CUDA`] for a GPU, or [`Backend::CPU`].
        backend: Backend,
        /// For [`crate::EngineOptions::devices`]; -1: `reason` says why no GPU is listed.
        index: i32,
        usable: bool,
        /// Of a GPU: 120 for 12.0.
        compute_capability: i32,
        /// The sizes are the system's.
        integrated: bool,
        total_bytes: u64,
        free_bytes: u64,
        name: String,
        /// Why it is not usable.
        reason: String,
    }

    /// What an engine's results were made on and of.
    EngineIdentity of dsv4_engine_identity {
        device: String,
        weight_format: String,
        /// Tells checkpoints apart; saved sessions carry it.
        fingerprint: String,
        /// "preview" or "0731"; empty without a tokenizer.
        chat_encoder: String,
        /// Why chat_encoder is a guess; empty if a file of the folder identifies it.
        chat_encoder_guess: String,
    }

    /// What a sync kept.
    SyncResult of dsv4_sync_result {
        common_tokens: i64,
        reused_tokens: i64,
        /// Left to prefill.
        pending_tokens: i64,
        prefix_cache_tokens: i64,
        limit_position: i64,
        limit: ReuseLimit,
    }

    /// What a session holds, and what it did since the last sync.
    Stats of dsv4_session_stats {
        /// In effect.
        seed: u64,
        context_tokens: i64,
        used_tokens: i64,
        prompt_tokens: i64,
        cached_tokens: i64,
        prefilled_tokens: i64,
        generated_tokens: i64,
        prefill_seconds: f64,
        decode_seconds: f64,
        cache_bytes: u64,
        prefix_cache_tokens: i64,
        drafted_tokens: i64,
        accepted_tokens: i64,
        draft_steps: i64,
        acceptance_length: f64,
        first_acceptance: f64,
        /// Raised since the last sync.
        alarms: Alarms,
    }
}
