// SPDX-License-Identifier: Apache-2.0
// The layout of every public struct, as a promise that the compiler keeps: offsets, sizes, no
// hidden padding. A field is only ever appended, so a line here is only ever added.
#include <dsv4/dsv4.h>

#include <cstddef>
#include <initializer_list>

namespace {

struct Field {
  size_t offset, size, promised_offset;
};

// Every field lies where it was promised and begins where the one before it ends; the last one ends
// the struct.
constexpr bool Holds(std::initializer_list<Field> fields, size_t struct_bytes) {
  size_t end = 0;
  for (const Field& field : fields) {
    if (field.offset != field.promised_offset || field.offset != end) return false;
    end += field.size;
  }
  return end == struct_bytes;
}

#define FIELD(type, name, promised_offset) \
  Field { offsetof(type, name), sizeof(type::name), promised_offset }

static_assert(sizeof(void*) == 8, "the layouts below are those of 64-bit machines");

using Options = dsv4_engine_options;
static_assert(Holds({FIELD(Options, struct_size, 0),
                     FIELD(Options, backend, 4),
                     FIELD(Options, numerics, 8),
                     FIELD(Options, device_count, 12),
                     FIELD(Options, devices, 16),
                     FIELD(Options, context_tokens, 24),
                     FIELD(Options, cache_tokens, 32),
                     FIELD(Options, max_sessions, 40),
                     FIELD(Options, prefill_chunk_tokens, 44),
                     FIELD(Options, threads, 48),
                     FIELD(Options, reserved, 52),
                     FIELD(Options, progress, 56),
                     FIELD(Options, progress_user, 64),
                     FIELD(Options, cache_format, 72),
                     FIELD(Options, max_draft_tokens, 76),
                     FIELD(Options, tuning_dir, 80),
                     FIELD(Options, drafter, 88),
                     FIELD(Options, reserved2, 92),
                     FIELD(Options, device_weight_bytes, 96),
                     FIELD(Options, host_weight_bytes, 104),
                     FIELD(Options, group_id, 112),
                     FIELD(Options, group_size, 120),
                     FIELD(Options, group_rank, 124),
                     FIELD(Options, expert_profile, 128),
                     FIELD(Options, skip_canary, 136),
                     FIELD(Options, cpu_experts, 140)},
                    sizeof(Options)) &&
              sizeof(Options) == 144);

using Device = dsv4_device_info;
static_assert(Holds({FIELD(Device, struct_size, 0), FIELD(Device, index, 4),
                     FIELD(Device, weight_bytes, 8), FIELD(Device, cache_bytes, 16),
                     FIELD(Device, workspace_bytes, 24)},
                    sizeof(Device)) &&
              sizeof(Device) == 32);

using Info = dsv4_engine_info;
static_assert(Holds({FIELD(Info, struct_size, 0),
                     FIELD(Info, backend, 4),
                     FIELD(Info, numerics, 8),
                     FIELD(Info, threads, 12),
                     FIELD(Info, context_tokens, 16),
                     FIELD(Info, cache_tokens, 24),
                     FIELD(Info, max_sessions, 32),
                     FIELD(Info, prefill_chunk_tokens, 36),
                     FIELD(Info, vocab_size, 40),
                     FIELD(Info, has_tokenizer, 44),
                     FIELD(Info, has_mtp, 48),
                     FIELD(Info, bos_token, 52),
                     FIELD(Info, eos_token, 56),
                     FIELD(Info, layers, 60),
                     FIELD(Info, weight_bytes, 64),
                     FIELD(Info, cache_bytes, 72),
                     FIELD(Info, workspace_bytes, 80),
                     FIELD(Info, cache_format, 88),
                     FIELD(Info, max_draft_tokens, 92),
                     FIELD(Info, cache_window_bytes, 96),
                     FIELD(Info, cache_compressed_bytes, 104),
                     FIELD(Info, cache_index_bytes, 112),
                     FIELD(Info, cache_state_bytes, 120),
                     FIELD(Info, device_count, 128),
                     FIELD(Info, step_exchanges, 132),
                     FIELD(Info, token_exchange_bytes, 136),
                     FIELD(Info, device_weight_bytes, 144),
                     FIELD(Info, device_cache_bytes, 152),
                     FIELD(Info, device_workspace_bytes, 160),
                     FIELD(Info, checkpoint_drafter, 168),
                     FIELD(Info, drafter, 172),
                     FIELD(Info, device_experts, 176),
                     FIELD(Info, host_experts, 184),
                     FIELD(Info, host_weight_bytes, 192),
                     FIELD(Info, token_expert_bytes, 200),
                     FIELD(Info, disk_experts, 208),
                     FIELD(Info, canary, 216),
                     FIELD(Info, cpu_experts, 220)},
                    sizeof(Info)) &&
              sizeof(Info) == 224);

using Identity = dsv4_engine_identity;
static_assert(Holds({FIELD(Identity, struct_size, 0), FIELD(Identity, reserved, 4),
                     FIELD(Identity, device, 8), FIELD(Identity, weight_format, 16),
                     FIELD(Identity, fingerprint, 24), FIELD(Identity, backend_reason, 32)},
                    sizeof(Identity)) &&
              sizeof(Identity) == 40);

using Metrics = dsv4_engine_metrics;
static_assert(Holds({FIELD(Metrics, struct_size, 0),
                     FIELD(Metrics, device_lost, 4),
                     FIELD(Metrics, sessions, 8),
                     FIELD(Metrics, waiting_requests, 12),
                     FIELD(Metrics, steps, 16),
                     FIELD(Metrics, step_seconds, 24),
                     FIELD(Metrics, step_tokens, 32),
                     FIELD(Metrics, cancelled_requests, 40),
                     FIELD(Metrics, failed_requests, 48),
                     FIELD(Metrics, prompt_tokens, 56),
                     FIELD(Metrics, reused_tokens, 64),
                     FIELD(Metrics, prefix_cache_tokens, 72),
                     FIELD(Metrics, prefilled_tokens, 80),
                     FIELD(Metrics, generated_tokens, 88),
                     FIELD(Metrics, draft_steps, 96),
                     FIELD(Metrics, drafted_tokens, 104),
                     FIELD(Metrics, accepted_tokens, 112),
                     FIELD(Metrics, exchanged_bytes, 120),
                     FIELD(Metrics, window_blocks, 128),
                     FIELD(Metrics, window_blocks_used, 132),
                     FIELD(Metrics, window_blocks_cached, 136),
                     FIELD(Metrics, compressed_kv_blocks, 140),
                     FIELD(Metrics, compressed_kv_blocks_used, 144),
                     FIELD(Metrics, compressed_kv_blocks_cached, 148),
                     FIELD(Metrics, state_slots, 152),
                     FIELD(Metrics, state_slots_used, 156),
                     FIELD(Metrics, state_slots_cached, 160),
                     FIELD(Metrics, suspended, 164),
                     FIELD(Metrics, alarm_nonfinite_logits, 168),
                     FIELD(Metrics, alarm_frozen_logits, 176),
                     FIELD(Metrics, alarm_token_run, 184),
                     FIELD(Metrics, alarm_bos_run, 192),
                     FIELD(Metrics, alarm_few_accepted, 200),
                     FIELD(Metrics, device_expert_reads, 208),
                     FIELD(Metrics, host_expert_reads, 216),
                     FIELD(Metrics, host_read_bytes, 224),
                     FIELD(Metrics, moved_experts, 232),
                     FIELD(Metrics, disk_expert_reads, 240),
                     FIELD(Metrics, disk_read_bytes, 248),
                     FIELD(Metrics, disk_read_seconds, 256),
                     FIELD(Metrics, device_read_bytes, 264),
                     FIELD(Metrics, streamed_bytes, 272),
                     FIELD(Metrics, stream_seconds, 280),
                     FIELD(Metrics, alarm_canary, 288),
                     FIELD(Metrics, cpu_expert_reads, 296),
                     FIELD(Metrics, cpu_read_bytes, 304),
                     FIELD(Metrics, cpu_seconds, 312),
                     FIELD(Metrics, device_read_seconds, 320),
                     FIELD(Metrics, host_read_seconds, 328)},
                    sizeof(Metrics)) &&
              sizeof(Metrics) == 336);

using Sampling = dsv4_sampling;
static_assert(Holds({FIELD(Sampling, struct_size, 0),
                     FIELD(Sampling, temperature, 4),
                     FIELD(Sampling, top_k, 8),
                     FIELD(Sampling, top_p, 12),
                     FIELD(Sampling, min_p, 16),
                     FIELD(Sampling, repetition_penalty, 20),
                     FIELD(Sampling, seed, 24),
                     FIELD(Sampling, max_tokens, 32),
                     FIELD(Sampling, presence_penalty, 40),
                     FIELD(Sampling, frequency_penalty, 44),
                     FIELD(Sampling, bias_tokens, 48),
                     FIELD(Sampling, biases, 56),
                     FIELD(Sampling, bias_count, 64),
                     FIELD(Sampling, banned_tokens, 72),
                     FIELD(Sampling, banned_count, 80),
                     FIELD(Sampling, forced_tokens, 88),
                     FIELD(Sampling, forced_count, 96),
                     FIELD(Sampling, max_thinking_tokens, 104),
                     FIELD(Sampling, stop_tokens, 112),
                     FIELD(Sampling, stop_token_count, 120),
                     FIELD(Sampling, stop_strings, 128),
                     FIELD(Sampling, stop_string_lengths, 136),
                     FIELD(Sampling, stop_string_count, 144),
                     FIELD(Sampling, log_probs, 152),
                     FIELD(Sampling, draft_tokens, 156),
                     FIELD(Sampling, grammar, 160)},
                    sizeof(Sampling)) &&
              sizeof(Sampling) == 168);

using ToolOptions = dsv4_tool_options;
static_assert(Holds({FIELD(ToolOptions, struct_size, 0), FIELD(ToolOptions, choice, 4),
                     FIELD(ToolOptions, name, 8), FIELD(ToolOptions, lenient, 16),
                     FIELD(ToolOptions, reserved, 20)},
                    sizeof(ToolOptions)) &&
              sizeof(ToolOptions) == 24);

using Sync = dsv4_sync_result;
static_assert(Holds({FIELD(Sync, struct_size, 0), FIELD(Sync, reserved, 4),
                     FIELD(Sync, common_tokens, 8), FIELD(Sync, reused_tokens, 16),
                     FIELD(Sync, pending_tokens, 24), FIELD(Sync, prefix_cache_tokens, 32),
                     FIELD(Sync, limit_position, 40), FIELD(Sync, limit, 48),
                     FIELD(Sync, reserved2, 52)},
                    sizeof(Sync)) &&
              sizeof(Sync) == 56);

using SyncOptions = dsv4_sync_options;
static_assert(Holds({FIELD(SyncOptions, struct_size, 0), FIELD(SyncOptions, log_probs_count, 4),
                     FIELD(SyncOptions, log_probs_begin, 8)},
                    sizeof(SyncOptions)) &&
              sizeof(SyncOptions) == 16);

using SessionOptions = dsv4_session_options;
static_assert(Holds({FIELD(SessionOptions, struct_size, 0), FIELD(SessionOptions, reserved, 4),
                     FIELD(SessionOptions, sampling, 8), FIELD(SessionOptions, cache_salt, 16)},
                    sizeof(SessionOptions)) &&
              sizeof(SessionOptions) == 24);

using Step = dsv4_step_result;
static_assert(Holds({FIELD(Step, struct_size, 0), FIELD(Step, token, 4), FIELD(Step, finish, 8),
                     FIELD(Step, text_length, 12), FIELD(Step, text, 16)},
                    sizeof(Step)) &&
              sizeof(Step) == 24);

using Stats = dsv4_session_stats;
static_assert(Holds({FIELD(Stats, struct_size, 0), FIELD(Stats, reserved, 4),
                     FIELD(Stats, context_tokens, 8), FIELD(Stats, used_tokens, 16),
                     FIELD(Stats, prompt_tokens, 24), FIELD(Stats, cached_tokens, 32),
                     FIELD(Stats, prefilled_tokens, 40), FIELD(Stats, generated_tokens, 48),
                     FIELD(Stats, prefill_seconds, 56), FIELD(Stats, decode_seconds, 64),
                     FIELD(Stats, cache_bytes, 72), FIELD(Stats, prefix_cache_tokens, 80),
                     FIELD(Stats, drafted_tokens, 88), FIELD(Stats, accepted_tokens, 96),
                     FIELD(Stats, draft_steps, 104), FIELD(Stats, acceptance_length, 112),
                     FIELD(Stats, first_acceptance, 120), FIELD(Stats, draft_stop, 128),
                     FIELD(Stats, alarms, 132)},
                    sizeof(Stats)) &&
              sizeof(Stats) == 136);

using Message = dsv4_message;
static_assert(Holds({FIELD(Message, struct_size, 0), FIELD(Message, role, 4),
                     FIELD(Message, content, 8), FIELD(Message, content_length, 16),
                     FIELD(Message, reasoning, 24), FIELD(Message, reasoning_length, 32),
                     FIELD(Message, tool_calls, 40), FIELD(Message, tool_call_count, 48),
                     FIELD(Message, tool_call_id, 56), FIELD(Message, tool_call_id_length, 64),
                     FIELD(Message, tools, 72), FIELD(Message, tools_length, 80),
                     FIELD(Message, response_format, 88),
                     FIELD(Message, response_format_length, 96), FIELD(Message, task, 104),
                     FIELD(Message, task_length, 112), FIELD(Message, wo_eos, 120),
                     FIELD(Message, reserved, 124)},
                    sizeof(Message)) &&
              sizeof(Message) == 128);

using ToolCall = dsv4_tool_call;
static_assert(Holds({FIELD(ToolCall, struct_size, 0), FIELD(ToolCall, reserved, 4),
                     FIELD(ToolCall, id, 8), FIELD(ToolCall, id_length, 16),
                     FIELD(ToolCall, name, 24), FIELD(ToolCall, name_length, 32),
                     FIELD(ToolCall, arguments, 40), FIELD(ToolCall, arguments_length, 48)},
                    sizeof(ToolCall)) &&
              sizeof(ToolCall) == 56);

using ChatOptions = dsv4_chat_options;
static_assert(Holds({FIELD(ChatOptions, struct_size, 0), FIELD(ChatOptions, thinking, 4),
                     FIELD(ChatOptions, keep_reasoning, 8), FIELD(ChatOptions, omit_begin, 12),
                     FIELD(ChatOptions, context, 16), FIELD(ChatOptions, context_length, 24),
                     FIELD(ChatOptions, context_messages, 32),
                     FIELD(ChatOptions, context_message_count, 40), FIELD(ChatOptions, encoder, 48),
                     FIELD(ChatOptions, reserved, 52)},
                    sizeof(ChatOptions)) &&
              sizeof(ChatOptions) == 56);

using ParserOptions = dsv4_parser_options;
static_assert(Holds({FIELD(ParserOptions, struct_size, 0), FIELD(ParserOptions, thinking, 4),
                     FIELD(ParserOptions, id_prefix, 8)},
                    sizeof(ParserOptions)) &&
              sizeof(ParserOptions) == 16);

using Event = dsv4_parser_event;
static_assert(
    Holds({FIELD(Event, struct_size, 0), FIELD(Event, type, 4), FIELD(Event, call, 8),
           FIELD(Event, repaired, 12), FIELD(Event, incomplete, 16), FIELD(Event, stopped, 20),
           FIELD(Event, text, 24), FIELD(Event, text_length, 32), FIELD(Event, id, 40),
           FIELD(Event, id_length, 48), FIELD(Event, reason, 56), FIELD(Event, reason_length, 64)},
          sizeof(Event)) &&
    sizeof(Event) == 72);

#undef FIELD

}  // namespace
