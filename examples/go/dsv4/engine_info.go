// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

// EngineInfo is the effective configuration of an engine and its memory.
type EngineInfo struct {
	Backend              Backend
	Numerics             string // "published", "fp32" or "exact"
	Threads              int32
	ContextTokens        int64
	CacheTokens          int64
	MaxSessions          int32
	PrefillChunkTokens   int32
	VocabSize            int32
	HasTokenizer         bool
	BOSToken             int32
	EOSToken             int32
	Layers               int32
	WeightBytes          uint64
	CacheBytes           uint64
	WorkspaceBytes       uint64
	CacheFormat          string // "packed", "bf16", "fp8_per_tensor" or "f32"
	MaxDraftTokens       int32
	CacheWindowBytes     uint64
	CacheCompressedBytes uint64
	CacheIndexBytes      uint64
	CacheStateBytes      uint64

	DeviceCount          int32
	StepExchanges        int64  // between devices, of a step that gives logits
	TokenExchangeBytes   uint64 // that each device has after them of a token
	DeviceWeightBytes    uint64 // of the device that has most, as are the next two
	DeviceCacheBytes     uint64
	DeviceWorkspaceBytes uint64

	CheckpointDrafter Drafter // that the model folder has
	Drafter           Drafter // that drafts for sessions

	DeviceExperts    int64 // routed experts in the devices' memory
	HostExperts      int64 // and in the host's
	HostWeightBytes  uint64
	TokenExpertBytes uint64 // that a token reads of routed experts
	DiskExperts      int64  // routed experts that stay on disk
	CPUExperts       int32  // of each layer, that the CPU computes

	Canary Canary

	// Tokens per second, of one session without drafts and of a long prompt; 0: not predicted.
	PredictedDecodeTokensPerSecond  float64
	PredictedPrefillTokensPerSecond float64

	// What BackendAuto chose and why not the alternatives; limits that were lowered to fit.
	BackendReason string

	SecondSetOperators string // that run the second set of kernels; "": none
}

func newEngineInfo(c *C.dsv4_engine_info) EngineInfo {
	return EngineInfo{
		Backend:              Backend(c.backend),
		Numerics:             C.GoString(c.numerics),
		Threads:              int32(c.threads),
		ContextTokens:        int64(c.context_tokens),
		CacheTokens:          int64(c.cache_tokens),
		MaxSessions:          int32(c.max_sessions),
		PrefillChunkTokens:   int32(c.prefill_chunk_tokens),
		VocabSize:            int32(c.vocab_size),
		HasTokenizer:         c.has_tokenizer != 0,
		BOSToken:             int32(c.bos_token),
		EOSToken:             int32(c.eos_token),
		Layers:               int32(c.layers),
		WeightBytes:          uint64(c.weight_bytes),
		CacheBytes:           uint64(c.cache_bytes),
		WorkspaceBytes:       uint64(c.workspace_bytes),
		CacheFormat:          C.GoString(c.cache_format),
		MaxDraftTokens:       int32(c.max_draft_tokens),
		CacheWindowBytes:     uint64(c.cache_window_bytes),
		CacheCompressedBytes: uint64(c.cache_compressed_bytes),
		CacheIndexBytes:      uint64(c.cache_index_bytes),
		CacheStateBytes:      uint64(c.cache_state_bytes),

		DeviceCount:          int32(c.device_count),
		StepExchanges:        int64(c.step_exchanges),
		TokenExchangeBytes:   uint64(c.token_exchange_bytes),
		DeviceWeightBytes:    uint64(c.device_weight_bytes),
		DeviceCacheBytes:     uint64(c.device_cache_bytes),
		DeviceWorkspaceBytes: uint64(c.device_workspace_bytes),

		CheckpointDrafter: Drafter(c.checkpoint_drafter),
		Drafter:           Drafter(c.drafter),

		DeviceExperts:    int64(c.device_experts),
		HostExperts:      int64(c.host_experts),
		HostWeightBytes:  uint64(c.host_weight_bytes),
		TokenExpertBytes: uint64(c.token_expert_bytes),
		DiskExperts:      int64(c.disk_experts),
		CPUExperts:       int32(c.cpu_experts),
		Canary:           Canary(c.canary),

		PredictedDecodeTokensPerSecond:  float64(c.predicted_decode_tokens_per_second),
		PredictedPrefillTokensPerSecond: float64(c.predicted_prefill_tokens_per_second),

		BackendReason: C.GoString(c.backend_reason),

		SecondSetOperators: C.GoString(c.second_set_operators),
	}
}

// EngineMetrics is what an engine has done since it was opened, and what it holds now.
type EngineMetrics struct {
	DeviceLost               bool
	Sessions                 int32
	WaitingRequests          int32
	Steps                    uint64
	StepSeconds              float64
	StepTokens               uint64
	CancelledRequests        uint64
	FailedRequests           uint64
	PromptTokens             uint64
	ReusedTokens             uint64
	PrefixCacheTokens        uint64
	PrefilledTokens          uint64
	GeneratedTokens          uint64
	DraftSteps               uint64
	DraftedTokens            uint64
	AcceptedTokens           uint64
	ExchangedBytes           uint64
	WindowBlocks             int32
	WindowBlocksUsed         int32
	WindowBlocksCached       int32
	CompressedKvBlocks       int32
	CompressedKvBlocksUsed   int32
	CompressedKvBlocksCached int32
	StateSlots               int32
	StateSlotsUsed           int32
	StateSlotsCached         int32
	Suspended                bool

	AlarmNonfiniteLogits uint64
	AlarmFrozenLogits    uint64
	AlarmTokenRun        uint64
	AlarmBosRun          uint64
	AlarmFewAccepted     uint64

	DeviceExpertReads uint64 // of routed experts, from device memory
	HostExpertReads   uint64 // and from host memory
	HostReadBytes     uint64
	MovedExperts      uint64 // to device memory
	DiskExpertReads   uint64 // from disk
	DiskReadBytes     uint64
	DiskReadSeconds   float64 // that passes waited for them
	DeviceReadBytes   uint64
	StreamedBytes     uint64 // copied from host memory for steps of long prompts
	StreamSeconds     float64

	AlarmCanary uint64

	SecondSetOperators uint64 // how many run the second set of kernels

	CPUExpertReads uint64 // experts that the CPU computed
	CPUReadBytes   uint64
	CPUSeconds     float64

	DeviceReadSeconds float64 // estimates, by the rate of copies
	HostReadSeconds   float64

	// Of one session: predicted without drafts; measured where it decoded alone, 0 before 256 tokens.
	PredictedDecodeTokensPerSecond float64
	MeasuredDecodeTokensPerSecond  float64
}

// EngineIdentity is what an engine's results were made on and of.
type EngineIdentity struct {
	Device       string
	WeightFormat string
	Fingerprint  string // tells checkpoints apart; saved sessions carry it
	ChatEncoder  string // "preview" or "0731"; empty without a tokenizer
	// Why ChatEncoder is a guess; empty if a file of the folder identifies it.
	ChatEncoderGuess string
}

// DeviceInfo is the planned memory of one device of an engine.
type DeviceInfo struct {
	Index          int32 // of the backend's devices; -1: of another process of the group
	WeightBytes    uint64
	CacheBytes     uint64
	WorkspaceBytes uint64
}

func newDeviceInfo(c *C.dsv4_device_info) DeviceInfo {
	return DeviceInfo{
		Index:          int32(c.index),
		WeightBytes:    uint64(c.weight_bytes),
		CacheBytes:     uint64(c.cache_bytes),
		WorkspaceBytes: uint64(c.workspace_bytes),
	}
}

// Info returns the effective configuration.
func (e *Engine) Info() (EngineInfo, error) {
	info := C.dsv4_engine_info{struct_size: C.sizeof_dsv4_engine_info}
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_get_info(e.c, &info, failure)
	})
	return newEngineInfo(&info), err
}

// Metrics returns counters and gauges, from any goroutine while others step.
func (e *Engine) Metrics() (EngineMetrics, error) {
	c := C.dsv4_engine_metrics{struct_size: C.sizeof_dsv4_engine_metrics}
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_get_metrics(e.c, &c, failure)
	})
	return EngineMetrics{
		DeviceLost:               c.device_lost != 0,
		Sessions:                 int32(c.sessions),
		WaitingRequests:          int32(c.waiting_requests),
		Steps:                    uint64(c.steps),
		StepSeconds:              float64(c.step_seconds),
		StepTokens:               uint64(c.step_tokens),
		CancelledRequests:        uint64(c.cancelled_requests),
		FailedRequests:           uint64(c.failed_requests),
		PromptTokens:             uint64(c.prompt_tokens),
		ReusedTokens:             uint64(c.reused_tokens),
		PrefixCacheTokens:        uint64(c.prefix_cache_tokens),
		PrefilledTokens:          uint64(c.prefilled_tokens),
		GeneratedTokens:          uint64(c.generated_tokens),
		DraftSteps:               uint64(c.draft_steps),
		DraftedTokens:            uint64(c.drafted_tokens),
		AcceptedTokens:           uint64(c.accepted_tokens),
		ExchangedBytes:           uint64(c.exchanged_bytes),
		WindowBlocks:             int32(c.window_blocks),
		WindowBlocksUsed:         int32(c.window_blocks_used),
		WindowBlocksCached:       int32(c.window_blocks_cached),
		CompressedKvBlocks:       int32(c.compressed_kv_blocks),
		CompressedKvBlocksUsed:   int32(c.compressed_kv_blocks_used),
		CompressedKvBlocksCached: int32(c.compressed_kv_blocks_cached),
		StateSlots:               int32(c.state_slots),
		StateSlotsUsed:           int32(c.state_slots_used),
		StateSlotsCached:         int32(c.state_slots_cached),
		Suspended:                c.suspended != 0,

		AlarmNonfiniteLogits: uint64(c.alarm_nonfinite_logits),
		AlarmFrozenLogits:    uint64(c.alarm_frozen_logits),
		AlarmTokenRun:        uint64(c.alarm_token_run),
		AlarmBosRun:          uint64(c.alarm_bos_run),
		AlarmFewAccepted:     uint64(c.alarm_few_accepted),

		DeviceExpertReads: uint64(c.device_expert_reads),
		HostExpertReads:   uint64(c.host_expert_reads),
		HostReadBytes:     uint64(c.host_read_bytes),
		MovedExperts:      uint64(c.moved_experts),
		DiskExpertReads:   uint64(c.disk_expert_reads),
		DiskReadBytes:     uint64(c.disk_read_bytes),
		DiskReadSeconds:   float64(c.disk_read_seconds),
		DeviceReadBytes:   uint64(c.device_read_bytes),
		StreamedBytes:     uint64(c.streamed_bytes),
		StreamSeconds:     float64(c.stream_seconds),
		AlarmCanary:       uint64(c.alarm_canary),

		SecondSetOperators: uint64(c.second_set_operators),

		CPUExpertReads:    uint64(c.cpu_expert_reads),
		CPUReadBytes:      uint64(c.cpu_read_bytes),
		CPUSeconds:        float64(c.cpu_seconds),
		DeviceReadSeconds: float64(c.device_read_seconds),
		HostReadSeconds:   float64(c.host_read_seconds),

		PredictedDecodeTokensPerSecond: float64(c.predicted_decode_tokens_per_second),
		MeasuredDecodeTokensPerSecond:  float64(c.measured_decode_tokens_per_second),
	}, err
}

// Identity returns device, weight format and the checkpoint's fingerprint.
func (e *Engine) Identity() (identity EngineIdentity, err error) {
	c := C.dsv4_engine_identity{struct_size: C.sizeof_dsv4_engine_identity}
	err = e.use(func(failure **C.dsv4_error) C.dsv4_status {
		status := C.dsv4_engine_get_identity(e.c, &c, failure)
		// Its texts are the engine's.
		identity = EngineIdentity{
			Device:       C.GoString(c.device),
			WeightFormat: C.GoString(c.weight_format),
			Fingerprint:  C.GoString(c.fingerprint),
			ChatEncoder:  C.GoString(c.chat_encoder),

			ChatEncoderGuess: C.GoString(c.chat_encoder_guess),
		}
		return status
	})
	return identity, err
}
