// SPDX-License-Identifier: Apache-2.0
//! What the library reports.
// Written from the C headers by tests/bindings/generate.sh; a test fails when they have moved on.

use crate::codes::{Alarms, Backend, Canary, Drafter, ReuseLimit};
use crate::mirror::{mirrors, FromC};
use dsv4_sys as sys;

mirrors! {
    /// The settings in effect and the planned memory. Numbers of bytes are totals over all devices,
    /// unless the field says otherwise. The strings live until the library is unloaded.
    EngineInfo of dsv4_engine_info {
        vocab_size: i32,
        layers: i32,
        bos_token: i32,
        eos_token: i32,
        /// 0 or 1
        has_tokenizer: bool,
        /// the drafter in the model folder, or NONE
        checkpoint_drafter: Drafter,
        /// NONE in a plan
        canary: Canary,
        backend: Backend,
        threads: i32,
        max_sessions: i32,
        prefill_chunk_tokens: i32,
        /// the drafter in use, or NONE
        drafter: Drafter,
        max_draft_tokens: i32,
        /// including the devices of the group's other processes
        device_count: i32,
        /// all-gathers in a step that computes logits; 0 on one device
        step_exchanges: i32,
        context_tokens: i64,
        cache_tokens: i64,
        /// as in the setting of that name
        numerics: String,
        /// as in the setting of that name
        cache_format: String,
        /// weights, mapped or copied from the checkpoint
        weight_bytes: u64,
        /// activations and scratch
        workspace_bytes: u64,
        /// KV block pool and compressor states: the sum of the next four
        cache_bytes: u64,
        /// sliding-window rows
        cache_window_bytes: u64,
        /// compressed rows
        cache_compressed_bytes: u64,
        /// index keys
        cache_index_bytes: u64,
        /// compressor states of sessions and restore points
        cache_state_bytes: u64,
        /// Bytes of the device with the largest total. The CPU backend maps weights once for all devices;
        /// device_weight_bytes then counts the bytes that one device reads.
        device_weight_bytes: u64,
        device_cache_bytes: u64,
        device_workspace_bytes: u64,
        /// Routed experts in device memory and in host memory, including the drafter's. Both are spread
        /// evenly over the layers. With the CPU backend, host_experts is the number of experts kept in
        /// memory, or 0 if host_weight_bytes is 0 and all weights are in memory.
        device_experts: i64,
        host_experts: i64,
        /// routed experts that stay in the checkpoint's files
        disk_experts: i64,
        /// Bytes of the experts in host memory and of the buffers for reads from disk. Not part of
        /// weight_bytes.
        host_weight_bytes: u64,
        /// Bytes of routed experts that one token reads in all layers. If a fraction h of them is in
        /// device memory, the devices together read the fraction 1 - h from host memory or disk.
        token_expert_bytes: u64,
        /// bytes that each device gathers for one token of a step
        token_exchange_bytes: u64,
        /// Predicted tokens per second: of one session without drafts, and of a long prompt. From the
        /// bytes of each kind of memory, table values for the rates of known devices (disk: 3 GB/s), and
        /// experts that are all chosen equally often. An expert_profile makes it faster. 0: not predicted.
        /// dsv4_engine_open measures host memory on the CPU, a GPU's link if experts are in host memory,
        /// and the model's disk if experts are there, in less than 0.3 s; backend_reason says which. On a
        /// busy machine the rates, and the predictions, are lower.
        predicted_decode_tokens_per_second: f64,
        predicted_prefill_tokens_per_second: f64,
        /// What DSV4_BACKEND_AUTO chose, and why it did not choose each alternative: a slower prediction,
        /// or the device, operator, capability or memory at fault. Then, for all backends, limits that
        /// were lowered to fit, and the rates that were measured at open. One line; "" if there is nothing
        /// to say.
        backend_reason: String,
        /// The operators that run the second set of kernels, because a GPU failed its known answers with
        /// the first: "linear_fp8, expert_ffn, pack_weight". Prompts then take longer. "" if none does.
        second_set_operators: String,
    }

    /// Counters since the engine was opened, and gauges of its present state. In each pool of the cache,
    /// `used` blocks belong to sessions. `cached` blocks belong to the prefix cache alone, which frees
    /// them when a session needs them. A request is one session's part of a step.
    EngineMetrics of dsv4_engine_metrics {
        /// 1 while the engine is suspended (dsv4_engine_suspend)
        suspended: bool,
        /// 1 after a step failed as DEVICE_LOST, until dsv4_engine_resume
        device_lost: bool,
        /// open now
        sessions: i32,
        /// requests in the running step or waiting for one
        waiting_requests: i32,
        /// KV blocks of window rows, 64 tokens each
        window_blocks: i32,
        window_blocks_used: i32,
        window_blocks_cached: i32,
        /// KV blocks of compressed rows, 256 tokens each
        compressed_kv_blocks: i32,
        compressed_kv_blocks_used: i32,
        compressed_kv_blocks_cached: i32,
        /// compressor states
        state_slots: i32,
        state_slots_used: i32,
        state_slots_cached: i32,
        /// forward passes
        steps: u64,
        /// time in steps
        step_seconds: f64,
        /// tokens computed: of prompts, generated ones and drafts
        step_tokens: u64,
        /// requests that were cancelled
        cancelled_requests: u64,
        /// requests that failed for another reason
        failed_requests: u64,
        /// bytes that each device gathered from the others
        exchanged_bytes: u64,
        /// tokens of all syncs
        prompt_tokens: u64,
        /// part of prompt_tokens whose cache rows were reused
        reused_tokens: u64,
        /// part of reused_tokens from the prefix cache
        prefix_cache_tokens: u64,
        /// prompt tokens computed
        prefilled_tokens: u64,
        /// tokens delivered
        generated_tokens: u64,
        /// requests that verified drafts
        draft_steps: u64,
        /// drafts verified
        drafted_tokens: u64,
        /// drafts accepted
        accepted_tokens: u64,
        /// Reads of routed experts; 0 if all experts are in device memory. A pass reads an expert once for
        /// all batch tokens that chose it. The last few passes may not be counted yet.
        /// experts moved to device memory
        moved_experts: u64,
        /// from device memory
        device_expert_reads: u64,
        /// bytes of device_expert_reads, by all devices
        device_read_bytes: u64,
        /// from host memory
        host_expert_reads: u64,
        /// bytes of host_expert_reads, by all devices
        host_read_bytes: u64,
        /// Estimates: device_read_bytes and host_read_bytes divided by the rates of copies, which are
        /// measured when the engine opens. Kernels read experts in place and during other work, so these
        /// reads cannot be timed. For the streamed part of host_read_bytes, stream_seconds is the measured
        /// time. 0 with the CPU backend.
        device_read_seconds: f64,
        host_read_seconds: f64,
        /// Bytes of experts that all devices copied from host memory for steps of long prompts, including
        /// experts that no token chose. host_read_bytes counts the chosen ones.
        streamed_bytes: u64,
        /// time that these copies took
        stream_seconds: f64,
        /// Experts read from disk, counted for each device. With the CPU backend: experts beyond
        /// host_weight_bytes that steps needed, even if the system's page cache had them;
        /// disk_read_seconds is 0.
        disk_expert_reads: u64,
        /// their bytes, by all devices
        disk_read_bytes: u64,
        /// time that passes waited for these reads
        disk_read_seconds: f64,
        /// Tokens per second of one session: as dsv4_engine_info predicts them, without drafts, and as
        /// measured in the steps that decoded for one session alone, with its drafts. Measured is 0 before
        /// 256 such tokens.
        predicted_decode_tokens_per_second: f64,
        measured_decode_tokens_per_second: f64,
        /// Alarms (see dsv4_alarms): the number of syncs whose output raised them.
        alarm_nonfinite_logits: u64,
        alarm_frozen_logits: u64,
        alarm_token_run: u64,
        alarm_bos_run: u64,
        alarm_few_accepted: u64,
        /// 1 if dsv4_engine_info.canary is FAILED
        alarm_canary: u64,
        /// How many operators run the second set of kernels: dsv4_engine_info.second_set_operators.
        second_set_operators: u64,
    }

    /// Planned memory of one device: see dsv4_plan. The CPU backend maps weights once for all
    /// devices; weight_bytes then counts the bytes that this device reads.
    DeviceInfo of dsv4_device_info {
        /// of the backend's devices; -1: a device of another process of the group
        index: i32,
        weight_bytes: u64,
        cache_bytes: u64,
        workspace_bytes: u64,
    }

    /// A device that an engine can use: see dsv4_list_devices. The strings are static: they stay valid
    /// until the library is unloaded.
    Device of dsv4_device {
        /// CUDA for a GPU, or CPU
        backend: Backend,
        /// for dsv4_engine_options.devices; -1: `reason` says why no GPU is listed
        index: i32,
        /// 1 if an engine can be opened on it with this backend; otherwise 0
        usable: bool,
        /// of a GPU: 10 * major + minor, as in 120 for 12.0; of a CPU: 0
        compute_capability: i32,
        /// 1: the GPU has no memory of its own, so that the sizes are the system's
        integrated: bool,
        /// of its memory; 0 if unknown
        total_bytes: u64,
        /// free for new allocations by any process; 0 if unknown or not usable
        free_bytes: u64,
        /// the vendor's, as in "NVIDIA GeForce RTX 5090"; "" for index -1
        name: String,
        /// Why it is not usable: no driver, a compute capability that this build has no kernels for, a
        /// compute mode, or a known-answer test that failed in this process. "" if it is usable.
        reason: String,
    }

    /// What a measurement should record about an engine. The strings live as long as the handle.
    EngineIdentity of dsv4_engine_identity {
        /// the vendor's name of the device
        device: String,
        /// Formats of the matrices and of the routed experts: "fp8+fp4", "fp8+nvfp4" or "fp8+fp8".
        weight_format: String,
        /// 32 hexadecimal digits that identify the checkpoint: a hash of the headers and of the beginning
        /// and end of every tensor. Saved sessions carry it.
        fingerprint: String,
        /// "preview" or "0731" (see dsv4_chat_encoder); "" without tokenizer
        chat_encoder: String,
        /// Why chat_encoder is a guess: no file of the folder identifies it. "" if one does.
        chat_encoder_guess: String,
    }

    /// Result of dsv4_session_sync.
    SyncResult of dsv4_sync_result {
        /// why KV rows end at limit_position
        limit: ReuseLimit,
        /// common prefix of the new tokens and the session's old ones
        common_tokens: i64,
        /// new tokens whose KV rows are reused
        reused_tokens: i64,
        /// new tokens left to compute
        pending_tokens: i64,
        /// part of reused_tokens that came from the engine's prefix cache
        prefix_cache_tokens: i64,
        /// KV rows exist for the tokens before this position. Reuse ends at a restore point at or before
        /// it: if 700 of 1000 new tokens match the session's 900 old ones and the last restore point is at
        /// 512, limit_position is 700, `limit` is DIFFERENT and reused_tokens is 512.
        limit_position: i64,
    }

    /// Statistics of a session. Counts are since its last sync.
    Stats of dsv4_session_stats {
        /// raised since the last sync: bits of DSV4_ALARM_
        alarms: Alarms,
        /// in effect
        seed: u64,
        /// the most tokens that the session may have
        context_tokens: i64,
        /// tokens that it has
        used_tokens: i64,
        /// tokens of the last sync
        prompt_tokens: i64,
        /// part of prompt_tokens that was reused
        cached_tokens: i64,
        /// prompt tokens computed
        prefilled_tokens: i64,
        generated_tokens: i64,
        prefill_seconds: f64,
        decode_seconds: f64,
        /// cache blocks and compressor states of the session
        cache_bytes: u64,
        /// part of cached_tokens that came from the engine's prefix cache
        prefix_cache_tokens: i64,
        /// drafts verified
        drafted_tokens: i64,
        /// drafts accepted
        accepted_tokens: i64,
        /// forward passes that verified drafts
        draft_steps: i64,
        /// tokens per draft step: 1 + accepted drafts; 0 without steps
        acceptance_length: f64,
        /// share of steps that accepted their first draft; 0 without steps
        first_acceptance: f64,
    }
}
