// SPDX-License-Identifier: Apache-2.0
// Written from the C headers by tests/bindings/generate.sh; an expression for main.rs to include.

listing! {
    dsv4_tool_call { struct_size, reserved, id, id_length, name, name_length, arguments, arguments_length }
    dsv4_message { struct_size, role, content, content_length, reasoning, reasoning_length, tool_calls, tool_call_count, tool_call_id, tool_call_id_length, tools, tools_length, response_format, response_format_length, task, task_length, wo_eos, reserved }
    dsv4_chat_options { struct_size, thinking, keep_reasoning, omit_begin, encoder, reserved, context, context_length }
    dsv4_device { struct_size, backend, index, usable, compute_capability, integrated, total_bytes, free_bytes, name, reason }
    dsv4_group_options { struct_size, size, id, rank, reserved }
    dsv4_engine_options { struct_size, backend, device_count, max_sessions, devices, context_tokens, cache_tokens, device_weight_bytes, host_weight_bytes, prefill_chunk_tokens, threads, drafter, max_draft_tokens, progress, progress_user, group, settings, setting_count }
    dsv4_engine_info { struct_size, vocab_size, layers, bos_token, eos_token, has_tokenizer, checkpoint_drafter, canary, backend, threads, max_sessions, prefill_chunk_tokens, drafter, max_draft_tokens, device_count, step_exchanges, context_tokens, cache_tokens, numerics, cache_format, weight_bytes, workspace_bytes, cache_bytes, cache_window_bytes, cache_compressed_bytes, cache_index_bytes, cache_state_bytes, device_weight_bytes, device_cache_bytes, device_workspace_bytes, device_experts, host_experts, disk_experts, host_weight_bytes, token_expert_bytes, token_exchange_bytes, predicted_decode_tokens_per_second, predicted_prefill_tokens_per_second, backend_reason, second_set_operators }
    dsv4_device_info { struct_size, index, weight_bytes, cache_bytes, workspace_bytes }
    dsv4_engine_identity { struct_size, reserved, device, weight_format, fingerprint, chat_encoder, chat_encoder_guess }
    dsv4_engine_metrics { struct_size, suspended, device_lost, sessions, waiting_requests, window_blocks, window_blocks_used, window_blocks_cached, compressed_kv_blocks, compressed_kv_blocks_used, compressed_kv_blocks_cached, state_slots, state_slots_used, state_slots_cached, steps, step_seconds, step_tokens, cancelled_requests, failed_requests, exchanged_bytes, prompt_tokens, reused_tokens, prefix_cache_tokens, prefilled_tokens, generated_tokens, draft_steps, drafted_tokens, accepted_tokens, moved_experts, device_expert_reads, device_read_bytes, host_expert_reads, host_read_bytes, device_read_seconds, host_read_seconds, streamed_bytes, stream_seconds, disk_expert_reads, disk_read_bytes, disk_read_seconds, predicted_decode_tokens_per_second, measured_decode_tokens_per_second, alarm_nonfinite_logits, alarm_frozen_logits, alarm_token_run, alarm_bos_run, alarm_few_accepted, alarm_canary, second_set_operators }
    dsv4_tool_options { struct_size, choice, name, lenient, quick }
    dsv4_parser_options { struct_size, thinking, id_prefix }
    dsv4_parser_event { struct_size, r#type, call, repaired, incomplete, stopped, text, text_length, id, id_length, reason, reason_length }
    dsv4_sampling { struct_size, temperature, top_k, top_p, min_p, repetition_penalty, seed, max_tokens, presence_penalty, frequency_penalty, bias_tokens, biases, bias_count, banned_tokens, banned_count, forced_tokens, forced_count, max_thinking_tokens, stop_tokens, stop_token_count, stop_strings, stop_string_lengths, stop_string_count, log_probs, draft_tokens, grammar }
    dsv4_session_options { struct_size, reserved, sampling, cache_salt }
    dsv4_sync_options { struct_size, log_probs_count, log_probs_begin }
    dsv4_sync_result { struct_size, limit, common_tokens, reused_tokens, pending_tokens, prefix_cache_tokens, limit_position }
    dsv4_step_result { struct_size, token, finish, text_length, text }
    dsv4_session_stats { struct_size, alarms, seed, context_tokens, used_tokens, prompt_tokens, cached_tokens, prefilled_tokens, generated_tokens, prefill_seconds, decode_seconds, cache_bytes, prefix_cache_tokens, drafted_tokens, accepted_tokens, draft_steps, acceptance_length, first_acceptance }
    ;
    DSV4_ABI_VERSION
    DSV4_ROLE_SYSTEM
    DSV4_ROLE_USER
    DSV4_ROLE_ASSISTANT
    DSV4_ROLE_TOOL
    DSV4_ROLE_LATEST_REMINDER
    DSV4_ROLE_DEVELOPER
    DSV4_THINKING_OFF
    DSV4_THINKING_HIGH
    DSV4_THINKING_MAX
    DSV4_THINKING_LOW
    DSV4_CHAT_ENCODER_AUTO
    DSV4_CHAT_ENCODER_PREVIEW
    DSV4_CHAT_ENCODER_0731
    DSV4_BACKEND_AUTO
    DSV4_BACKEND_CPU
    DSV4_BACKEND_REFERENCE
    DSV4_BACKEND_CUDA
    DSV4_DRAFTER_AUTO
    DSV4_DRAFTER_NONE
    DSV4_DRAFTER_MTP
    DSV4_DRAFTER_DSPARK
    DSV4_DRAFTER_NGRAM
    DSV4_PROGRESS_LOAD
    DSV4_PROGRESS_PREFILL
    DSV4_PROGRESS_SAVE
    DSV4_PROGRESS_RESTORE
    DSV4_PROGRESS_SERVE
    DSV4_UNIT_BYTES
    DSV4_UNIT_TOKENS
    DSV4_CANARY_NONE
    DSV4_CANARY_PASSED
    DSV4_CANARY_FAILED
    DSV4_CANARY_NOT_RUN
    DSV4_OK
    DSV4_ERR_INVALID_ARGUMENT
    DSV4_ERR_NOT_FOUND
    DSV4_ERR_IO
    DSV4_ERR_CORRUPT
    DSV4_ERR_UNSUPPORTED
    DSV4_ERR_OUT_OF_HOST_MEMORY
    DSV4_ERR_OUT_OF_DEVICE_MEMORY
    DSV4_ERR_CONTEXT_FULL
    DSV4_ERR_OUT_OF_BLOCKS
    DSV4_ERR_CANCELLED
    DSV4_ERR_BUSY
    DSV4_ERR_DEVICE_LOST
    DSV4_ERR_VERSION_MISMATCH
    DSV4_ERR_INTERNAL
    DSV4_ERR_SUSPENDED
    DSV4_GRAMMAR_SCHEMA
    DSV4_GRAMMAR_REGEX
    DSV4_GRAMMAR_EBNF
    DSV4_TOOL_CHOICE_AUTO
    DSV4_TOOL_CHOICE_NONE
    DSV4_TOOL_CHOICE_REQUIRED
    DSV4_LOG_ERROR
    DSV4_LOG_WARNING
    DSV4_LOG_INFO
    DSV4_PARSER_REASONING
    DSV4_PARSER_TEXT
    DSV4_PARSER_TOOL_CALL_START
    DSV4_PARSER_TOOL_CALL_ARGUMENTS
    DSV4_PARSER_TOOL_CALL_END
    DSV4_PARSER_MALFORMED
    DSV4_PARSER_END
    DSV4_GREEDY
    DSV4_SEED_RANDOM
    DSV4_REUSE_ALL
    DSV4_REUSE_LAST_TOKEN
    DSV4_REUSE_DIFFERENT
    DSV4_REUSE_NO_RESTORE_POINT
    DSV4_REUSE_NOT_CACHED
    DSV4_REUSE_INCOMPLETE_BLOCK
    DSV4_FINISH_NONE
    DSV4_FINISH_STOP
    DSV4_FINISH_LENGTH
    DSV4_FINISH_CONTEXT_FULL
    DSV4_FINISH_TOOL_CALL
    DSV4_FINISH_CANCELLED
    DSV4_FINISH_ERROR
    DSV4_ALARM_NONFINITE_LOGITS
    DSV4_ALARM_FROZEN_LOGITS
    DSV4_ALARM_TOKEN_RUN
    DSV4_ALARM_BOS_RUN
    DSV4_ALARM_FEW_ACCEPTED
    DSV4_ALARM_CANARY
    DSV4_ENCODE_PLAIN
    DSV4_ENCODE_ADDED_TOKENS
    ;
    dsv4_get_abi_version
    dsv4_get_version
    dsv4_get_build_info
    dsv4_chat_render
    dsv4_chat_render_text
    dsv4_session_sync_messages
    dsv4_session_sync_json
    dsv4_engine_step
    dsv4_session_end_turn
    dsv4_session_get_reply_json
    dsv4_list_devices
    dsv4_engine_open
    dsv4_engine_close
    dsv4_engine_get_info
    dsv4_engine_get_identity
    dsv4_engine_get_metrics
    dsv4_engine_suspend
    dsv4_engine_resume
    dsv4_plan
    dsv4_group_create_id
    dsv4_group_serve
    dsv4_inspect
    dsv4_engine_get_tokenizer
    dsv4_error_get_message
    dsv4_error_get_argument
    dsv4_error_free
    dsv4_status_get_name
    dsv4_grammar_open
    dsv4_grammar_open_answer
    dsv4_grammar_get_unenforced
    dsv4_grammar_close
    dsv4_log_set_callback
    dsv4_parser_open
    dsv4_parser_close
    dsv4_parser_feed
    dsv4_parser_end
    dsv4_sampling_init
    dsv4_session_open
    dsv4_session_close
    dsv4_session_fork
    dsv4_session_set_sampling
    dsv4_session_set_allowed
    dsv4_session_sync
    dsv4_session_rewind
    dsv4_session_prefill
    dsv4_session_step
    dsv4_session_set_stopped
    dsv4_session_get_tokens
    dsv4_session_get_log_probs
    dsv4_session_save
    dsv4_session_save_memory
    dsv4_session_load
    dsv4_session_load_memory
    dsv4_session_get_stats
    dsv4_tokenizer_open
    dsv4_tokenizer_close
    dsv4_tokenizer_encode
    dsv4_tokenizer_decode
    dsv4_tokenizer_get_token_bytes
    dsv4_tokenizer_get_added_token
    dsv4_tokenizer_get_vocab_size
}
