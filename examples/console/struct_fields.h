// SPDX-License-Identifier: Apache-2.0
// The fields of structs that the library fills, by name.
// Written from the C headers by tests/bindings/generate.sh; a test fails when they have moved on.
#pragma once

#include <dsv4/dsv4.h>

namespace chat {

inline const char* BackendName(dsv4_backend value) {
  switch (value) {
    case DSV4_BACKEND_AUTO:
      return "auto";
    case DSV4_BACKEND_CPU:
      return "cpu";
    case DSV4_BACKEND_REFERENCE:
      return "reference";
    case DSV4_BACKEND_CUDA:
      return "cuda";
    default:
      return "unknown";
  }
}

inline const char* DrafterName(dsv4_drafter value) {
  switch (value) {
    case DSV4_DRAFTER_AUTO:
      return "auto";
    case DSV4_DRAFTER_NONE:
      return "none";
    case DSV4_DRAFTER_MTP:
      return "mtp";
    case DSV4_DRAFTER_DSPARK:
      return "dspark";
    case DSV4_DRAFTER_NGRAM:
      return "ngram";
    default:
      return "unknown";
  }
}

inline const char* CanaryName(dsv4_canary value) {
  switch (value) {
    case DSV4_CANARY_NONE:
      return "none";
    case DSV4_CANARY_PASSED:
      return "passed";
    case DSV4_CANARY_FAILED:
      return "failed";
    case DSV4_CANARY_NOT_RUN:
      return "not_run";
    default:
      return "unknown";
  }
}

template <class Visit>
void ForEachField(const dsv4_engine_info& in, const Visit& visit) {
  visit("vocab_size", in.vocab_size);
  visit("layers", in.layers);
  visit("bos_token", in.bos_token);
  visit("eos_token", in.eos_token);
  visit("has_tokenizer", in.has_tokenizer != 0);
  visit("checkpoint_drafter", DrafterName(in.checkpoint_drafter));
  visit("canary", CanaryName(in.canary));
  visit("backend", BackendName(in.backend));
  visit("threads", in.threads);
  visit("max_sessions", in.max_sessions);
  visit("prefill_chunk_tokens", in.prefill_chunk_tokens);
  visit("drafter", DrafterName(in.drafter));
  visit("max_draft_tokens", in.max_draft_tokens);
  visit("device_count", in.device_count);
  visit("step_exchanges", in.step_exchanges);
  visit("context_tokens", in.context_tokens);
  visit("cache_tokens", in.cache_tokens);
  visit("numerics", in.numerics);
  visit("cache_format", in.cache_format);
  visit("weight_bytes", in.weight_bytes);
  visit("workspace_bytes", in.workspace_bytes);
  visit("cache_bytes", in.cache_bytes);
  visit("cache_window_bytes", in.cache_window_bytes);
  visit("cache_compressed_bytes", in.cache_compressed_bytes);
  visit("cache_index_bytes", in.cache_index_bytes);
  visit("cache_state_bytes", in.cache_state_bytes);
  visit("device_weight_bytes", in.device_weight_bytes);
  visit("device_cache_bytes", in.device_cache_bytes);
  visit("device_workspace_bytes", in.device_workspace_bytes);
  visit("device_experts", in.device_experts);
  visit("host_experts", in.host_experts);
  visit("disk_experts", in.disk_experts);
  visit("host_weight_bytes", in.host_weight_bytes);
  visit("token_expert_bytes", in.token_expert_bytes);
  visit("token_exchange_bytes", in.token_exchange_bytes);
  visit("predicted_decode_tokens_per_second", in.predicted_decode_tokens_per_second);
  visit("predicted_prefill_tokens_per_second", in.predicted_prefill_tokens_per_second);
  visit("backend_reason", in.backend_reason);
  visit("second_set_operators", in.second_set_operators);
}

template <class Visit>
void ForEachField(const dsv4_engine_metrics& in, const Visit& visit) {
  visit("suspended", in.suspended != 0);
  visit("device_lost", in.device_lost != 0);
  visit("sessions", in.sessions);
  visit("waiting_requests", in.waiting_requests);
  visit("window_blocks", in.window_blocks);
  visit("window_blocks_used", in.window_blocks_used);
  visit("window_blocks_cached", in.window_blocks_cached);
  visit("compressed_kv_blocks", in.compressed_kv_blocks);
  visit("compressed_kv_blocks_used", in.compressed_kv_blocks_used);
  visit("compressed_kv_blocks_cached", in.compressed_kv_blocks_cached);
  visit("state_slots", in.state_slots);
  visit("state_slots_used", in.state_slots_used);
  visit("state_slots_cached", in.state_slots_cached);
  visit("steps", in.steps);
  visit("step_seconds", in.step_seconds);
  visit("step_tokens", in.step_tokens);
  visit("cancelled_requests", in.cancelled_requests);
  visit("failed_requests", in.failed_requests);
  visit("exchanged_bytes", in.exchanged_bytes);
  visit("prompt_tokens", in.prompt_tokens);
  visit("reused_tokens", in.reused_tokens);
  visit("prefix_cache_tokens", in.prefix_cache_tokens);
  visit("prefilled_tokens", in.prefilled_tokens);
  visit("generated_tokens", in.generated_tokens);
  visit("draft_steps", in.draft_steps);
  visit("drafted_tokens", in.drafted_tokens);
  visit("accepted_tokens", in.accepted_tokens);
  visit("moved_experts", in.moved_experts);
  visit("device_expert_reads", in.device_expert_reads);
  visit("device_read_bytes", in.device_read_bytes);
  visit("host_expert_reads", in.host_expert_reads);
  visit("host_read_bytes", in.host_read_bytes);
  visit("device_read_seconds", in.device_read_seconds);
  visit("host_read_seconds", in.host_read_seconds);
  visit("streamed_bytes", in.streamed_bytes);
  visit("stream_seconds", in.stream_seconds);
  visit("disk_expert_reads", in.disk_expert_reads);
  visit("disk_read_bytes", in.disk_read_bytes);
  visit("disk_read_seconds", in.disk_read_seconds);
  visit("predicted_decode_tokens_per_second", in.predicted_decode_tokens_per_second);
  visit("measured_decode_tokens_per_second", in.measured_decode_tokens_per_second);
  visit("alarm_nonfinite_logits", in.alarm_nonfinite_logits);
  visit("alarm_frozen_logits", in.alarm_frozen_logits);
  visit("alarm_token_run", in.alarm_token_run);
  visit("alarm_bos_run", in.alarm_bos_run);
  visit("alarm_few_accepted", in.alarm_few_accepted);
  visit("alarm_canary", in.alarm_canary);
  visit("second_set_operators", in.second_set_operators);
}

template <class Visit>
void ForEachField(const dsv4_device_info& in, const Visit& visit) {
  visit("index", in.index);
  visit("weight_bytes", in.weight_bytes);
  visit("cache_bytes", in.cache_bytes);
  visit("workspace_bytes", in.workspace_bytes);
}

}  // namespace chat
