// SPDX-License-Identifier: Apache-2.0
// Written from the C headers by tests/bindings/generate.sh; a test fails when they have moved on.

use std::os::raw::{c_char, c_void};

pub type dsv4_role = i32;
pub type dsv4_thinking_mode = i32;
pub type dsv4_chat_encoder = i32;
pub type dsv4_backend = i32;
pub type dsv4_drafter = i32;
pub type dsv4_progress_phase = i32;
pub type dsv4_progress_unit = i32;
pub type dsv4_canary = i32;
pub type dsv4_status = i32;
pub type dsv4_grammar_kind = i32;
pub type dsv4_tool_choice = i32;
pub type dsv4_log_level = i32;
pub type dsv4_parser_event_type = i32;
pub type dsv4_reuse_limit = i32;
pub type dsv4_finish = i32;
pub type dsv4_alarms = i32;

pub const DSV4_ABI_VERSION: u32 = 1;
pub const DSV4_ROLE_SYSTEM: dsv4_role = 1;
pub const DSV4_ROLE_USER: dsv4_role = 2;
pub const DSV4_ROLE_ASSISTANT: dsv4_role = 3;
pub const DSV4_ROLE_TOOL: dsv4_role = 4;
pub const DSV4_ROLE_LATEST_REMINDER: dsv4_role = 5;
pub const DSV4_ROLE_DEVELOPER: dsv4_role = 6;
pub const DSV4_THINKING_OFF: dsv4_thinking_mode = 0;
pub const DSV4_THINKING_HIGH: dsv4_thinking_mode = 1;
pub const DSV4_THINKING_MAX: dsv4_thinking_mode = 2;
pub const DSV4_THINKING_LOW: dsv4_thinking_mode = 3;
pub const DSV4_CHAT_ENCODER_AUTO: dsv4_chat_encoder = 0;
pub const DSV4_CHAT_ENCODER_PREVIEW: dsv4_chat_encoder = 1;
pub const DSV4_CHAT_ENCODER_0731: dsv4_chat_encoder = 2;
pub const DSV4_BACKEND_AUTO: dsv4_backend = 0;
pub const DSV4_BACKEND_CPU: dsv4_backend = 1;
pub const DSV4_BACKEND_REFERENCE: dsv4_backend = 2;
pub const DSV4_BACKEND_CUDA: dsv4_backend = 3;
pub const DSV4_DRAFTER_AUTO: dsv4_drafter = 0;
pub const DSV4_DRAFTER_NONE: dsv4_drafter = 1;
pub const DSV4_DRAFTER_MTP: dsv4_drafter = 2;
pub const DSV4_DRAFTER_DSPARK: dsv4_drafter = 3;
pub const DSV4_DRAFTER_NGRAM: dsv4_drafter = 4;
pub const DSV4_PROGRESS_LOAD: dsv4_progress_phase = 1;
pub const DSV4_PROGRESS_PREFILL: dsv4_progress_phase = 2;
pub const DSV4_PROGRESS_SAVE: dsv4_progress_phase = 3;
pub const DSV4_PROGRESS_RESTORE: dsv4_progress_phase = 4;
pub const DSV4_PROGRESS_SERVE: dsv4_progress_phase = 5;
pub const DSV4_UNIT_BYTES: dsv4_progress_unit = 1;
pub const DSV4_UNIT_TOKENS: dsv4_progress_unit = 2;
pub const DSV4_CANARY_NONE: dsv4_canary = 0;
pub const DSV4_CANARY_PASSED: dsv4_canary = 1;
pub const DSV4_CANARY_FAILED: dsv4_canary = 2;
pub const DSV4_CANARY_NOT_RUN: dsv4_canary = 3;
pub const DSV4_OK: dsv4_status = 0;
pub const DSV4_ERR_INVALID_ARGUMENT: dsv4_status = -1;
pub const DSV4_ERR_NOT_FOUND: dsv4_status = -2;
pub const DSV4_ERR_IO: dsv4_status = -3;
pub const DSV4_ERR_CORRUPT: dsv4_status = -4;
pub const DSV4_ERR_UNSUPPORTED: dsv4_status = -5;
pub const DSV4_ERR_OUT_OF_HOST_MEMORY: dsv4_status = -6;
pub const DSV4_ERR_OUT_OF_DEVICE_MEMORY: dsv4_status = -7;
pub const DSV4_ERR_CONTEXT_FULL: dsv4_status = -8;
pub const DSV4_ERR_OUT_OF_BLOCKS: dsv4_status = -9;
pub const DSV4_ERR_CANCELLED: dsv4_status = -10;
pub const DSV4_ERR_BUSY: dsv4_status = -11;
pub const DSV4_ERR_DEVICE_LOST: dsv4_status = -12;
pub const DSV4_ERR_VERSION_MISMATCH: dsv4_status = -13;
pub const DSV4_ERR_INTERNAL: dsv4_status = -14;
pub const DSV4_ERR_SUSPENDED: dsv4_status = -15;
pub const DSV4_GRAMMAR_SCHEMA: dsv4_grammar_kind = 1;
pub const DSV4_GRAMMAR_REGEX: dsv4_grammar_kind = 2;
pub const DSV4_GRAMMAR_EBNF: dsv4_grammar_kind = 3;
pub const DSV4_TOOL_CHOICE_AUTO: dsv4_tool_choice = 0;
pub const DSV4_TOOL_CHOICE_NONE: dsv4_tool_choice = 1;
pub const DSV4_TOOL_CHOICE_REQUIRED: dsv4_tool_choice = 2;
pub const DSV4_LOG_ERROR: dsv4_log_level = 1;
pub const DSV4_LOG_WARNING: dsv4_log_level = 2;
pub const DSV4_LOG_INFO: dsv4_log_level = 3;
pub const DSV4_PARSER_REASONING: dsv4_parser_event_type = 1;
pub const DSV4_PARSER_TEXT: dsv4_parser_event_type = 2;
pub const DSV4_PARSER_TOOL_CALL_START: dsv4_parser_event_type = 3;
pub const DSV4_PARSER_TOOL_CALL_ARGUMENTS: dsv4_parser_event_type = 4;
pub const DSV4_PARSER_TOOL_CALL_END: dsv4_parser_event_type = 5;
pub const DSV4_PARSER_MALFORMED: dsv4_parser_event_type = 6;
pub const DSV4_PARSER_END: dsv4_parser_event_type = 7;
pub const DSV4_GREEDY: f32 = -1.0;
pub const DSV4_SEED_RANDOM: u64 = 9223372036854775807;
pub const DSV4_REUSE_ALL: dsv4_reuse_limit = 0;
pub const DSV4_REUSE_LAST_TOKEN: dsv4_reuse_limit = 1;
pub const DSV4_REUSE_DIFFERENT: dsv4_reuse_limit = 2;
pub const DSV4_REUSE_NO_RESTORE_POINT: dsv4_reuse_limit = 3;
pub const DSV4_REUSE_NOT_CACHED: dsv4_reuse_limit = 4;
pub const DSV4_REUSE_INCOMPLETE_BLOCK: dsv4_reuse_limit = 5;
pub const DSV4_FINISH_NONE: dsv4_finish = 0;
pub const DSV4_FINISH_STOP: dsv4_finish = 1;
pub const DSV4_FINISH_LENGTH: dsv4_finish = 2;
pub const DSV4_FINISH_CONTEXT_FULL: dsv4_finish = 3;
pub const DSV4_FINISH_TOOL_CALL: dsv4_finish = 4;
pub const DSV4_FINISH_CANCELLED: dsv4_finish = 5;
pub const DSV4_FINISH_ERROR: dsv4_finish = 6;
pub const DSV4_ALARM_NONFINITE_LOGITS: dsv4_alarms = 1;
pub const DSV4_ALARM_FROZEN_LOGITS: dsv4_alarms = 2;
pub const DSV4_ALARM_TOKEN_RUN: dsv4_alarms = 4;
pub const DSV4_ALARM_BOS_RUN: dsv4_alarms = 8;
pub const DSV4_ALARM_FEW_ACCEPTED: dsv4_alarms = 16;
pub const DSV4_ALARM_CANARY: dsv4_alarms = 32;
pub const DSV4_ENCODE_PLAIN: u32 = 0;
pub const DSV4_ENCODE_ADDED_TOKENS: u32 = 1;

/// Opaque: of the library alone, behind pointers.
#[repr(C)]
pub struct dsv4_engine {
    _opaque: [u8; 0],
    _not_send_sync_unpin: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
}

/// Opaque: of the library alone, behind pointers.
#[repr(C)]
pub struct dsv4_error {
    _opaque: [u8; 0],
    _not_send_sync_unpin: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
}

/// Opaque: of the library alone, behind pointers.
#[repr(C)]
pub struct dsv4_grammar {
    _opaque: [u8; 0],
    _not_send_sync_unpin: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
}

/// Opaque: of the library alone, behind pointers.
#[repr(C)]
pub struct dsv4_parser {
    _opaque: [u8; 0],
    _not_send_sync_unpin: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
}

/// Opaque: of the library alone, behind pointers.
#[repr(C)]
pub struct dsv4_session {
    _opaque: [u8; 0],
    _not_send_sync_unpin: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
}

/// Opaque: of the library alone, behind pointers.
#[repr(C)]
pub struct dsv4_tokenizer {
    _opaque: [u8; 0],
    _not_send_sync_unpin: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
}

pub type dsv4_progress_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, phase: dsv4_progress_phase, done: u64, total: u64, unit: dsv4_progress_unit) -> i32>;
pub type dsv4_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, level: dsv4_log_level, message: *const c_char)>;
pub type dsv4_parser_event_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, event: *const dsv4_parser_event)>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_tool_call {
    pub struct_size: u32,
    pub reserved: i32,
    pub id: *const c_char,
    pub id_length: u64,
    pub name: *const c_char,
    pub name_length: u64,
    pub arguments: *const c_char,
    pub arguments_length: u64,
}
sized!(dsv4_tool_call);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_message {
    pub struct_size: u32,
    pub role: dsv4_role,
    pub content: *const c_char,
    pub content_length: u64,
    pub reasoning: *const c_char,
    pub reasoning_length: u64,
    pub tool_calls: *const *const dsv4_tool_call,
    pub tool_call_count: u64,
    pub tool_call_id: *const c_char,
    pub tool_call_id_length: u64,
    pub tools: *const c_char,
    pub tools_length: u64,
    pub response_format: *const c_char,
    pub response_format_length: u64,
    pub task: *const c_char,
    pub task_length: u64,
    pub wo_eos: i32,
    pub reserved: i32,
}
sized!(dsv4_message);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_chat_options {
    pub struct_size: u32,
    pub thinking: dsv4_thinking_mode,
    pub keep_reasoning: i32,
    pub omit_begin: i32,
    pub encoder: dsv4_chat_encoder,
    pub reserved: i32,
    pub context: *const c_char,
    pub context_length: u64,
}
sized!(dsv4_chat_options);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_device {
    pub struct_size: u32,
    pub backend: dsv4_backend,
    pub index: i32,
    pub usable: i32,
    pub compute_capability: i32,
    pub integrated: i32,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub name: *const c_char,
    pub reason: *const c_char,
}
sized!(dsv4_device);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_group_options {
    pub struct_size: u32,
    pub size: i32,
    pub id: *const c_char,
    pub rank: i32,
    pub reserved: i32,
}
sized!(dsv4_group_options);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_engine_options {
    pub struct_size: u32,
    pub backend: dsv4_backend,
    pub device_count: u32,
    pub max_sessions: i32,
    pub devices: *const i32,
    pub context_tokens: i64,
    pub cache_tokens: i64,
    pub device_weight_bytes: i64,
    pub host_weight_bytes: i64,
    pub prefill_chunk_tokens: i32,
    pub threads: i32,
    pub drafter: dsv4_drafter,
    pub max_draft_tokens: i32,
    pub progress: dsv4_progress_fn,
    pub progress_user: *mut c_void,
    pub group: *const dsv4_group_options,
    pub settings: *const *const c_char,
    pub setting_count: u64,
}
sized!(dsv4_engine_options);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_engine_info {
    pub struct_size: u32,
    pub vocab_size: i32,
    pub layers: i32,
    pub bos_token: i32,
    pub eos_token: i32,
    pub has_tokenizer: i32,
    pub checkpoint_drafter: dsv4_drafter,
    pub canary: dsv4_canary,
    pub backend: dsv4_backend,
    pub threads: i32,
    pub max_sessions: i32,
    pub prefill_chunk_tokens: i32,
    pub drafter: dsv4_drafter,
    pub max_draft_tokens: i32,
    pub device_count: i32,
    pub step_exchanges: i32,
    pub context_tokens: i64,
    pub cache_tokens: i64,
    pub numerics: *const c_char,
    pub cache_format: *const c_char,
    pub weight_bytes: u64,
    pub workspace_bytes: u64,
    pub cache_bytes: u64,
    pub cache_window_bytes: u64,
    pub cache_compressed_bytes: u64,
    pub cache_index_bytes: u64,
    pub cache_state_bytes: u64,
    pub device_weight_bytes: u64,
    pub device_cache_bytes: u64,
    pub device_workspace_bytes: u64,
    pub device_experts: i64,
    pub host_experts: i64,
    pub disk_experts: i64,
    pub host_weight_bytes: u64,
    pub token_expert_bytes: u64,
    pub token_exchange_bytes: u64,
    pub predicted_decode_tokens_per_second: f64,
    pub predicted_prefill_tokens_per_second: f64,
    pub backend_reason: *const c_char,
    pub second_set_operators: *const c_char,
}
sized!(dsv4_engine_info);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_device_info {
    pub struct_size: u32,
    pub index: i32,
    pub weight_bytes: u64,
    pub cache_bytes: u64,
    pub workspace_bytes: u64,
}
sized!(dsv4_device_info);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_engine_identity {
    pub struct_size: u32,
    pub reserved: u32,
    pub device: *const c_char,
    pub weight_format: *const c_char,
    pub fingerprint: *const c_char,
    pub chat_encoder: *const c_char,
    pub chat_encoder_guess: *const c_char,
}
sized!(dsv4_engine_identity);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_engine_metrics {
    pub struct_size: u32,
    pub suspended: i32,
    pub device_lost: i32,
    pub sessions: i32,
    pub waiting_requests: i32,
    pub window_blocks: i32,
    pub window_blocks_used: i32,
    pub window_blocks_cached: i32,
    pub compressed_kv_blocks: i32,
    pub compressed_kv_blocks_used: i32,
    pub compressed_kv_blocks_cached: i32,
    pub state_slots: i32,
    pub state_slots_used: i32,
    pub state_slots_cached: i32,
    pub steps: u64,
    pub step_seconds: f64,
    pub step_tokens: u64,
    pub cancelled_requests: u64,
    pub failed_requests: u64,
    pub exchanged_bytes: u64,
    pub prompt_tokens: u64,
    pub reused_tokens: u64,
    pub prefix_cache_tokens: u64,
    pub prefilled_tokens: u64,
    pub generated_tokens: u64,
    pub draft_steps: u64,
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
    pub moved_experts: u64,
    pub device_expert_reads: u64,
    pub device_read_bytes: u64,
    pub host_expert_reads: u64,
    pub host_read_bytes: u64,
    pub device_read_seconds: f64,
    pub host_read_seconds: f64,
    pub streamed_bytes: u64,
    pub stream_seconds: f64,
    pub disk_expert_reads: u64,
    pub disk_read_bytes: u64,
    pub disk_read_seconds: f64,
    pub predicted_decode_tokens_per_second: f64,
    pub measured_decode_tokens_per_second: f64,
    pub alarm_nonfinite_logits: u64,
    pub alarm_frozen_logits: u64,
    pub alarm_token_run: u64,
    pub alarm_bos_run: u64,
    pub alarm_few_accepted: u64,
    pub alarm_canary: u64,
    pub second_set_operators: u64,
}
sized!(dsv4_engine_metrics);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_tool_options {
    pub struct_size: u32,
    pub choice: dsv4_tool_choice,
    pub name: *const c_char,
    pub lenient: i32,
    pub quick: i32,
}
sized!(dsv4_tool_options);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_parser_options {
    pub struct_size: u32,
    pub thinking: dsv4_thinking_mode,
    pub id_prefix: *const c_char,
}
sized!(dsv4_parser_options);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_parser_event {
    pub struct_size: u32,
    pub r#type: dsv4_parser_event_type,
    pub call: i32,
    pub repaired: i32,
    pub incomplete: i32,
    pub stopped: i32,
    pub text: *const c_char,
    pub text_length: u64,
    pub id: *const c_char,
    pub id_length: u64,
    pub reason: *const c_char,
    pub reason_length: u64,
}
sized!(dsv4_parser_event);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_sampling {
    pub struct_size: u32,
    pub temperature: f32,
    pub top_k: i32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub seed: u64,
    pub max_tokens: i64,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub bias_tokens: *const i32,
    pub biases: *const f32,
    pub bias_count: u64,
    pub banned_tokens: *const i32,
    pub banned_count: u64,
    pub forced_tokens: *const i32,
    pub forced_count: u64,
    pub max_thinking_tokens: i64,
    pub stop_tokens: *const i32,
    pub stop_token_count: u64,
    pub stop_strings: *const *const c_char,
    pub stop_string_lengths: *const u64,
    pub stop_string_count: u64,
    pub log_probs: i32,
    pub draft_tokens: i32,
    pub grammar: *const dsv4_grammar,
}
sized!(dsv4_sampling);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_session_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub sampling: *const dsv4_sampling,
    pub cache_salt: u64,
}
sized!(dsv4_session_options);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_sync_options {
    pub struct_size: u32,
    pub log_probs_count: i32,
    pub log_probs_begin: i64,
}
sized!(dsv4_sync_options);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_sync_result {
    pub struct_size: u32,
    pub limit: dsv4_reuse_limit,
    pub common_tokens: i64,
    pub reused_tokens: i64,
    pub pending_tokens: i64,
    pub prefix_cache_tokens: i64,
    pub limit_position: i64,
}
sized!(dsv4_sync_result);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_step_result {
    pub struct_size: u32,
    pub token: i32,
    pub finish: dsv4_finish,
    pub text_length: u32,
    pub text: *const c_char,
}
sized!(dsv4_step_result);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsv4_session_stats {
    pub struct_size: u32,
    pub alarms: dsv4_alarms,
    pub seed: u64,
    pub context_tokens: i64,
    pub used_tokens: i64,
    pub prompt_tokens: i64,
    pub cached_tokens: i64,
    pub prefilled_tokens: i64,
    pub generated_tokens: i64,
    pub prefill_seconds: f64,
    pub decode_seconds: f64,
    pub cache_bytes: u64,
    pub prefix_cache_tokens: i64,
    pub drafted_tokens: i64,
    pub accepted_tokens: i64,
    pub draft_steps: i64,
    pub acceptance_length: f64,
    pub first_acceptance: f64,
}
sized!(dsv4_session_stats);

extern "C" {
    pub fn dsv4_get_abi_version() -> u32;
    pub fn dsv4_get_version() -> *const c_char;
    pub fn dsv4_get_build_info() -> *const c_char;
    pub fn dsv4_chat_render(tokenizer: *const dsv4_tokenizer, messages: *const c_char, length: usize, options: *const dsv4_chat_options, ids: *mut i32, capacity: usize, needed: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_chat_render_text(messages: *const c_char, length: usize, options: *const dsv4_chat_options, text: *mut c_char, capacity: usize, needed: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_sync_messages(session: *mut dsv4_session, messages: *const *const dsv4_message, count: usize, options: *const dsv4_chat_options, result: *mut dsv4_sync_result, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_sync_json(session: *mut dsv4_session, messages: *const c_char, length: usize, options: *const dsv4_chat_options, result: *mut dsv4_sync_result, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_engine_step(engine: *mut dsv4_engine, sessions: *const *mut dsv4_session, count: usize, callback: dsv4_parser_event_fn, users: *const *mut c_void, results: *const *mut dsv4_step_result, statuses: *mut dsv4_status, errors: *mut *mut dsv4_error, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_end_turn(session: *mut dsv4_session, callback: dsv4_parser_event_fn, user: *mut c_void, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_get_reply_json(session: *const dsv4_session, json: *mut c_char, capacity: usize, needed: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_list_devices(devices: *mut dsv4_device, capacity: usize, needed: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_engine_open(path: *const c_char, options: *const dsv4_engine_options, engine: *mut *mut dsv4_engine, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_engine_close(engine: *mut dsv4_engine);
    pub fn dsv4_engine_get_info(engine: *const dsv4_engine, info: *mut dsv4_engine_info, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_engine_get_identity(engine: *const dsv4_engine, identity: *mut dsv4_engine_identity, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_engine_get_metrics(engine: *const dsv4_engine, metrics: *mut dsv4_engine_metrics, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_engine_suspend(engine: *mut dsv4_engine, folder: *const c_char, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_engine_resume(engine: *mut dsv4_engine, progress: dsv4_progress_fn, progress_user: *mut c_void, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_plan(path: *const c_char, options: *const dsv4_engine_options, info: *mut dsv4_engine_info, devices: *mut dsv4_device_info, capacity: usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_group_create_id(options: *const dsv4_engine_options, id: *mut c_char, capacity: usize, needed: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_group_serve(path: *const c_char, options: *const dsv4_engine_options, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_inspect(path: *const c_char, json: *mut c_char, capacity: usize, needed: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_engine_get_tokenizer(engine: *const dsv4_engine, tokenizer: *mut *const dsv4_tokenizer, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_error_get_message(error: *const dsv4_error) -> *const c_char;
    pub fn dsv4_error_get_argument(error: *const dsv4_error) -> *const c_char;
    pub fn dsv4_error_free(error: *mut dsv4_error);
    pub fn dsv4_status_get_name(status: dsv4_status) -> *const c_char;
    pub fn dsv4_grammar_open(engine: *const dsv4_engine, kind: dsv4_grammar_kind, source: *const c_char, length: usize, grammar: *mut *mut dsv4_grammar, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_grammar_open_answer(engine: *const dsv4_engine, tools: *const c_char, tools_length: usize, schema: *const c_char, schema_length: usize, options: *const dsv4_tool_options, grammar: *mut *mut dsv4_grammar, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_grammar_get_unenforced(grammar: *const dsv4_grammar, json: *mut c_char, capacity: usize, needed: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_grammar_close(grammar: *mut dsv4_grammar);
    pub fn dsv4_log_set_callback(callback: dsv4_log_fn, user: *mut c_void, level: dsv4_log_level);
    pub fn dsv4_parser_open(options: *const dsv4_parser_options, parser: *mut *mut dsv4_parser, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_parser_close(parser: *mut dsv4_parser);
    pub fn dsv4_parser_feed(parser: *mut dsv4_parser, bytes: *const c_char, length: usize, callback: dsv4_parser_event_fn, user: *mut c_void, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_parser_end(parser: *mut dsv4_parser, callback: dsv4_parser_event_fn, user: *mut c_void, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_sampling_init(engine: *const dsv4_engine, sampling: *mut dsv4_sampling, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_open(engine: *mut dsv4_engine, options: *const dsv4_session_options, session: *mut *mut dsv4_session, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_close(session: *mut dsv4_session);
    pub fn dsv4_session_fork(session: *mut dsv4_session, fork: *mut *mut dsv4_session, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_set_sampling(session: *mut dsv4_session, sampling: *const dsv4_sampling, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_set_allowed(session: *mut dsv4_session, words: *const u32, count: usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_sync(session: *mut dsv4_session, tokens: *const i32, count: usize, options: *const dsv4_sync_options, result: *mut dsv4_sync_result, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_rewind(session: *mut dsv4_session, position: i64, pending: *mut i64, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_prefill(session: *mut dsv4_session, max_tokens: i64, progress: dsv4_progress_fn, progress_user: *mut c_void, pending: *mut i64, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_step(session: *mut dsv4_session, callback: dsv4_parser_event_fn, user: *mut c_void, result: *mut dsv4_step_result, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_set_stopped(session: *mut dsv4_session, stopped: i32);
    pub fn dsv4_session_get_tokens(session: *const dsv4_session, tokens: *mut *const i32, count: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_get_log_probs(session: *const dsv4_session, position: i64, log_prob: *mut f32, top_tokens: *mut i32, top_log_probs: *mut f32, capacity: usize, top_count: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_save(session: *const dsv4_session, path: *const c_char, progress: dsv4_progress_fn, progress_user: *mut c_void, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_save_memory(session: *const dsv4_session, data: *mut u8, capacity: usize, needed: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_load(session: *mut dsv4_session, path: *const c_char, progress: dsv4_progress_fn, progress_user: *mut c_void, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_load_memory(session: *mut dsv4_session, data: *const u8, size: usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_session_get_stats(session: *const dsv4_session, stats: *mut dsv4_session_stats, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_tokenizer_open(path: *const c_char, tokenizer: *mut *mut dsv4_tokenizer, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_tokenizer_close(tokenizer: *mut dsv4_tokenizer);
    pub fn dsv4_tokenizer_encode(tokenizer: *const dsv4_tokenizer, text: *const c_char, length: usize, flags: u32, ids: *mut i32, capacity: usize, count: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_tokenizer_decode(tokenizer: *const dsv4_tokenizer, ids: *const i32, count: usize, text: *mut c_char, capacity: usize, length: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_tokenizer_get_token_bytes(tokenizer: *const dsv4_tokenizer, id: i32, bytes: *mut c_char, capacity: usize, length: *mut usize, error: *mut *mut dsv4_error) -> dsv4_status;
    pub fn dsv4_tokenizer_get_added_token(tokenizer: *const dsv4_tokenizer, text: *const c_char) -> i32;
    pub fn dsv4_tokenizer_get_vocab_size(tokenizer: *const dsv4_tokenizer) -> i32;
}
