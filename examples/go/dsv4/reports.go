// SPDX-License-Identifier: Apache-2.0
// Written from the C headers by tests/bindings/generate.sh; a test fails when they have moved on.

package dsv4

// #include <dsv4/dsv4.h>
import "C"

// EngineInfo has the fields of dsv4_engine_info.
//
// The settings in effect and the planned memory. Numbers of bytes are totals over all devices,
// unless the field says otherwise. The strings live until the library is unloaded.
type EngineInfo struct {
	VocabSize int32
	Layers    int32
	BOSToken  int32
	EOSToken  int32
	// 0 or 1
	HasTokenizer bool
	// the drafter in the model folder, or NONE
	CheckpointDrafter Drafter
	// NONE in a plan
	Canary             Canary
	Backend            Backend
	Threads            int32
	MaxSessions        int32
	PrefillChunkTokens int32
	// the drafter in use, or NONE
	Drafter        Drafter
	MaxDraftTokens int32
	// including the devices of the group's other processes
	DeviceCount int32
	// all-gathers in a step that computes logits; 0 on one device
	StepExchanges int32
	ContextTokens int64
	CacheTokens   int64
	// as in the setting of that name
	Numerics string
	// as in the setting of that name
	CacheFormat string
	// weights, mapped or copied from the checkpoint
	WeightBytes uint64
	// activations and scratch
	WorkspaceBytes uint64
	// KV block pool and compressor states: the sum of the next four
	CacheBytes uint64
	// sliding-window rows
	CacheWindowBytes uint64
	// compressed rows
	CacheCompressedBytes uint64
	// index keys
	CacheIndexBytes uint64
	// compressor states of sessions and restore points
	CacheStateBytes uint64
	// Bytes of the device with the largest total. The CPU backend maps weights once for all devices;
	// device_weight_bytes then counts the bytes that one device reads.
	DeviceWeightBytes    uint64
	DeviceCacheBytes     uint64
	DeviceWorkspaceBytes uint64
	// Routed experts in device memory and in host memory, including the drafter's. Both are spread
	// evenly over the layers. With the CPU backend, host_experts is the number of experts kept in
	// memory, or 0 if host_weight_bytes is 0 and all weights are in memory.
	DeviceExperts int64
	HostExperts   int64
	// routed experts that stay in the checkpoint's files
	DiskExperts int64
	// Bytes of the experts in host memory and of the buffers for reads from disk. Not part of
	// weight_bytes.
	HostWeightBytes uint64
	// Bytes of routed experts that one token reads in all layers. If a fraction h of them is in
	// device memory, the devices together read the fraction 1 - h from host memory or disk.
	TokenExpertBytes uint64
	// bytes that each device gathers for one token of a step
	TokenExchangeBytes uint64
	// Predicted tokens per second: of one session without drafts, and of a long prompt. From the
	// bytes of each kind of memory, table values for the rates of known devices (disk: 3 GB/s), and
	// experts that are all chosen equally often. An expert_profile makes it faster. 0: not predicted.
	// dsv4_engine_open measures host memory on the CPU, a GPU's link if experts are in host memory,
	// and the model's disk if experts are there, in less than 0.3 s; backend_reason says which. On a
	// busy machine the rates, and the predictions, are lower.
	PredictedDecodeTokensPerSecond  float64
	PredictedPrefillTokensPerSecond float64
	// What DSV4_BACKEND_AUTO chose, and why it did not choose each alternative: a slower prediction,
	// or the device, operator, capability or memory at fault. Then, for all backends, limits that
	// were lowered to fit, and the rates that were measured at open. One line; "" if there is nothing
	// to say.
	BackendReason string
	// The operators that run the second set of kernels, because a GPU failed its known answers with
	// the first: "linear_fp8, expert_ffn, pack_weight". Prompts then take longer. "" if none does.
	SecondSetOperators string
}

func newEngineInfo(c *C.dsv4_engine_info) (out EngineInfo) {
	out.VocabSize = int32(c.vocab_size)
	out.Layers = int32(c.layers)
	out.BOSToken = int32(c.bos_token)
	out.EOSToken = int32(c.eos_token)
	out.HasTokenizer = c.has_tokenizer != 0
	out.CheckpointDrafter = Drafter(c.checkpoint_drafter)
	out.Canary = Canary(c.canary)
	out.Backend = Backend(c.backend)
	out.Threads = int32(c.threads)
	out.MaxSessions = int32(c.max_sessions)
	out.PrefillChunkTokens = int32(c.prefill_chunk_tokens)
	out.Drafter = Drafter(c.drafter)
	out.MaxDraftTokens = int32(c.max_draft_tokens)
	out.DeviceCount = int32(c.device_count)
	out.StepExchanges = int32(c.step_exchanges)
	out.ContextTokens = int64(c.context_tokens)
	out.CacheTokens = int64(c.cache_tokens)
	out.Numerics = C.GoString(c.numerics)
	out.CacheFormat = C.GoString(c.cache_format)
	out.WeightBytes = uint64(c.weight_bytes)
	out.WorkspaceBytes = uint64(c.workspace_bytes)
	out.CacheBytes = uint64(c.cache_bytes)
	out.CacheWindowBytes = uint64(c.cache_window_bytes)
	out.CacheCompressedBytes = uint64(c.cache_compressed_bytes)
	out.CacheIndexBytes = uint64(c.cache_index_bytes)
	out.CacheStateBytes = uint64(c.cache_state_bytes)
	out.DeviceWeightBytes = uint64(c.device_weight_bytes)
	out.DeviceCacheBytes = uint64(c.device_cache_bytes)
	out.DeviceWorkspaceBytes = uint64(c.device_workspace_bytes)
	out.DeviceExperts = int64(c.device_experts)
	out.HostExperts = int64(c.host_experts)
	out.DiskExperts = int64(c.disk_experts)
	out.HostWeightBytes = uint64(c.host_weight_bytes)
	out.TokenExpertBytes = uint64(c.token_expert_bytes)
	out.TokenExchangeBytes = uint64(c.token_exchange_bytes)
	out.PredictedDecodeTokensPerSecond = float64(c.predicted_decode_tokens_per_second)
	out.PredictedPrefillTokensPerSecond = float64(c.predicted_prefill_tokens_per_second)
	out.BackendReason = C.GoString(c.backend_reason)
	out.SecondSetOperators = C.GoString(c.second_set_operators)
	return out
}

// EngineMetrics has the fields of dsv4_engine_metrics.
//
// Counters since the engine was opened, and gauges of its present state. In each pool of the cache,
// `used` blocks belong to sessions. `cached` blocks belong to the prefix cache alone, which frees
// them when a session needs them. A request is one session's part of a step.
type EngineMetrics struct {
	// 1 while the engine is suspended (dsv4_engine_suspend)
	Suspended bool
	// 1 after a step failed as DEVICE_LOST, until dsv4_engine_resume
	DeviceLost bool
	// open now
	Sessions int32
	// requests in the running step or waiting for one
	WaitingRequests int32
	// KV blocks of window rows, 64 tokens each
	WindowBlocks       int32
	WindowBlocksUsed   int32
	WindowBlocksCached int32
	// KV blocks of compressed rows, 256 tokens each
	CompressedKvBlocks       int32
	CompressedKvBlocksUsed   int32
	CompressedKvBlocksCached int32
	// compressor states
	StateSlots       int32
	StateSlotsUsed   int32
	StateSlotsCached int32
	// forward passes
	Steps uint64
	// time in steps
	StepSeconds float64
	// tokens computed: of prompts, generated ones and drafts
	StepTokens uint64
	// requests that were cancelled
	CancelledRequests uint64
	// requests that failed for another reason
	FailedRequests uint64
	// bytes that each device gathered from the others
	ExchangedBytes uint64
	// tokens of all syncs
	PromptTokens uint64
	// part of prompt_tokens whose cache rows were reused
	ReusedTokens uint64
	// part of reused_tokens from the prefix cache
	PrefixCacheTokens uint64
	// prompt tokens computed
	PrefilledTokens uint64
	// tokens delivered
	GeneratedTokens uint64
	// requests that verified drafts
	DraftSteps uint64
	// drafts verified
	DraftedTokens uint64
	// drafts accepted
	AcceptedTokens uint64
	// Reads of routed experts; 0 if all experts are in device memory. A pass reads an expert once for
	// all batch tokens that chose it. The last few passes may not be counted yet.
	// experts moved to device memory
	MovedExperts uint64
	// from device memory
	DeviceExpertReads uint64
	// bytes of device_expert_reads, by all devices
	DeviceReadBytes uint64
	// from host memory
	HostExpertReads uint64
	// bytes of host_expert_reads, by all devices
	HostReadBytes uint64
	// Estimates: device_read_bytes and host_read_bytes divided by the rates of copies, which are
	// measured when the engine opens. Kernels read experts in place and during other work, so these
	// reads cannot be timed. For the streamed part of host_read_bytes, stream_seconds is the measured
	// time. 0 with the CPU backend.
	DeviceReadSeconds float64
	HostReadSeconds   float64
	// Bytes of experts that all devices copied from host memory for steps of long prompts, including
	// experts that no token chose. host_read_bytes counts the chosen ones.
	StreamedBytes uint64
	// time that these copies took
	StreamSeconds float64
	// Experts read from disk, counted for each device. With the CPU backend: experts beyond
	// host_weight_bytes that steps needed, even if the system's page cache had them;
	// disk_read_seconds is 0.
	DiskExpertReads uint64
	// their bytes, by all devices
	DiskReadBytes uint64
	// time that passes waited for these reads
	DiskReadSeconds float64
	// Tokens per second of one session: as dsv4_engine_info predicts them, without drafts, and as
	// measured in the steps that decoded for one session alone, with its drafts. Measured is 0 before
	// 256 such tokens.
	PredictedDecodeTokensPerSecond float64
	MeasuredDecodeTokensPerSecond  float64
	// Alarms (see dsv4_alarms): the number of syncs whose output raised them.
	AlarmNonfiniteLogits uint64
	AlarmFrozenLogits    uint64
	AlarmTokenRun        uint64
	AlarmBOSRun          uint64
	AlarmFewAccepted     uint64
	// 1 if dsv4_engine_info.canary is FAILED
	AlarmCanary uint64
	// How many operators run the second set of kernels: dsv4_engine_info.second_set_operators.
	SecondSetOperators uint64
}

func newEngineMetrics(c *C.dsv4_engine_metrics) (out EngineMetrics) {
	out.Suspended = c.suspended != 0
	out.DeviceLost = c.device_lost != 0
	out.Sessions = int32(c.sessions)
	out.WaitingRequests = int32(c.waiting_requests)
	out.WindowBlocks = int32(c.window_blocks)
	out.WindowBlocksUsed = int32(c.window_blocks_used)
	out.WindowBlocksCached = int32(c.window_blocks_cached)
	out.CompressedKvBlocks = int32(c.compressed_kv_blocks)
	out.CompressedKvBlocksUsed = int32(c.compressed_kv_blocks_used)
	out.CompressedKvBlocksCached = int32(c.compressed_kv_blocks_cached)
	out.StateSlots = int32(c.state_slots)
	out.StateSlotsUsed = int32(c.state_slots_used)
	out.StateSlotsCached = int32(c.state_slots_cached)
	out.Steps = uint64(c.steps)
	out.StepSeconds = float64(c.step_seconds)
	out.StepTokens = uint64(c.step_tokens)
	out.CancelledRequests = uint64(c.cancelled_requests)
	out.FailedRequests = uint64(c.failed_requests)
	out.ExchangedBytes = uint64(c.exchanged_bytes)
	out.PromptTokens = uint64(c.prompt_tokens)
	out.ReusedTokens = uint64(c.reused_tokens)
	out.PrefixCacheTokens = uint64(c.prefix_cache_tokens)
	out.PrefilledTokens = uint64(c.prefilled_tokens)
	out.GeneratedTokens = uint64(c.generated_tokens)
	out.DraftSteps = uint64(c.draft_steps)
	out.DraftedTokens = uint64(c.drafted_tokens)
	out.AcceptedTokens = uint64(c.accepted_tokens)
	out.MovedExperts = uint64(c.moved_experts)
	out.DeviceExpertReads = uint64(c.device_expert_reads)
	out.DeviceReadBytes = uint64(c.device_read_bytes)
	out.HostExpertReads = uint64(c.host_expert_reads)
	out.HostReadBytes = uint64(c.host_read_bytes)
	out.DeviceReadSeconds = float64(c.device_read_seconds)
	out.HostReadSeconds = float64(c.host_read_seconds)
	out.StreamedBytes = uint64(c.streamed_bytes)
	out.StreamSeconds = float64(c.stream_seconds)
	out.DiskExpertReads = uint64(c.disk_expert_reads)
	out.DiskReadBytes = uint64(c.disk_read_bytes)
	out.DiskReadSeconds = float64(c.disk_read_seconds)
	out.PredictedDecodeTokensPerSecond = float64(c.predicted_decode_tokens_per_second)
	out.MeasuredDecodeTokensPerSecond = float64(c.measured_decode_tokens_per_second)
	out.AlarmNonfiniteLogits = uint64(c.alarm_nonfinite_logits)
	out.AlarmFrozenLogits = uint64(c.alarm_frozen_logits)
	out.AlarmTokenRun = uint64(c.alarm_token_run)
	out.AlarmBOSRun = uint64(c.alarm_bos_run)
	out.AlarmFewAccepted = uint64(c.alarm_few_accepted)
	out.AlarmCanary = uint64(c.alarm_canary)
	out.SecondSetOperators = uint64(c.second_set_operators)
	return out
}

// DeviceInfo has the fields of dsv4_device_info.
//
// Planned memory of one device: see dsv4_plan. The CPU backend maps weights once for all
// devices; weight_bytes then counts the bytes that this device reads.
type DeviceInfo struct {
	// of the backend's devices; -1: a device of another process of the group
	Index          int32
	WeightBytes    uint64
	CacheBytes     uint64
	WorkspaceBytes uint64
}

func newDeviceInfo(c *C.dsv4_device_info) (out DeviceInfo) {
	out.Index = int32(c.index)
	out.WeightBytes = uint64(c.weight_bytes)
	out.CacheBytes = uint64(c.cache_bytes)
	out.WorkspaceBytes = uint64(c.workspace_bytes)
	return out
}

// Device has the fields of dsv4_device.
//
// A device that an engine can use: see dsv4_list_devices. The strings are static: they stay valid
// until the library is unloaded.
type Device struct {
	// CUDA for a GPU, or CPU
	Backend Backend
	// for dsv4_engine_options.devices; -1: `reason` says why no GPU is listed
	Index int32
	// 1 if an engine can be opened on it with this backend; otherwise 0
	Usable bool
	// of a GPU: 10 * major + minor, as in 120 for 12.0; of a CPU: 0
	ComputeCapability int32
	// 1: the GPU has no memory of its own, so that the sizes are the system's
	Integrated bool
	// of its memory; 0 if unknown
	TotalBytes uint64
	// free for new allocations by any process; 0 if unknown or not usable
	FreeBytes uint64
	// the vendor's, as in "NVIDIA GeForce RTX 5090"; "" for index -1
	Name string
	// Why it is not usable: no driver, a compute capability that this build has no kernels for, a
	// compute mode, or a known-answer test that failed in this process. "" if it is usable.
	Reason string
}

func newDevice(c *C.dsv4_device) (out Device) {
	out.Backend = Backend(c.backend)
	out.Index = int32(c.index)
	out.Usable = c.usable != 0
	out.ComputeCapability = int32(c.compute_capability)
	out.Integrated = c.integrated != 0
	out.TotalBytes = uint64(c.total_bytes)
	out.FreeBytes = uint64(c.free_bytes)
	out.Name = C.GoString(c.name)
	out.Reason = C.GoString(c.reason)
	return out
}

// EngineIdentity has the fields of dsv4_engine_identity.
//
// What a measurement should record about an engine. The strings live as long as the handle.
type EngineIdentity struct {
	// the vendor's name of the device
	Device string
	// Formats of the matrices and of the routed experts: "fp8+fp4", "fp8+nvfp4" or "fp8+fp8".
	WeightFormat string
	// 32 hexadecimal digits that identify the checkpoint: a hash of the headers and of the beginning
	// and end of every tensor. Saved sessions carry it.
	Fingerprint string
	// "preview" or "0731" (see dsv4_chat_encoder); "" without tokenizer
	ChatEncoder string
	// Why chat_encoder is a guess: no file of the folder identifies it. "" if one does.
	ChatEncoderGuess string
}

func newEngineIdentity(c *C.dsv4_engine_identity) (out EngineIdentity) {
	out.Device = C.GoString(c.device)
	out.WeightFormat = C.GoString(c.weight_format)
	out.Fingerprint = C.GoString(c.fingerprint)
	out.ChatEncoder = C.GoString(c.chat_encoder)
	out.ChatEncoderGuess = C.GoString(c.chat_encoder_guess)
	return out
}

// SyncResult has the fields of dsv4_sync_result.
//
// Result of dsv4_session_sync.
type SyncResult struct {
	// why KV rows end at limit_position
	Limit ReuseLimit
	// common prefix of the new tokens and the session's old ones
	CommonTokens int64
	// new tokens whose KV rows are reused
	ReusedTokens int64
	// new tokens left to compute
	PendingTokens int64
	// part of reused_tokens that came from the engine's prefix cache
	PrefixCacheTokens int64
	// KV rows exist for the tokens before this position. Reuse ends at a restore point at or before
	// it: if 700 of 1000 new tokens match the session's 900 old ones and the last restore point is at
	// 512, limit_position is 700, `limit` is DIFFERENT and reused_tokens is 512.
	LimitPosition int64
}

func newSyncResult(c *C.dsv4_sync_result) (out SyncResult) {
	out.Limit = ReuseLimit(c.limit)
	out.CommonTokens = int64(c.common_tokens)
	out.ReusedTokens = int64(c.reused_tokens)
	out.PendingTokens = int64(c.pending_tokens)
	out.PrefixCacheTokens = int64(c.prefix_cache_tokens)
	out.LimitPosition = int64(c.limit_position)
	return out
}

// Stats has the fields of dsv4_session_stats.
//
// Statistics of a session. Counts are since its last sync.
type Stats struct {
	// raised since the last sync: bits of DSV4_ALARM_
	Alarms Alarms
	// in effect
	Seed uint64
	// the most tokens that the session may have
	ContextTokens int64
	// tokens that it has
	UsedTokens int64
	// tokens of the last sync
	PromptTokens int64
	// part of prompt_tokens that was reused
	CachedTokens int64
	// prompt tokens computed
	PrefilledTokens int64
	GeneratedTokens int64
	PrefillSeconds  float64
	DecodeSeconds   float64
	// cache blocks and compressor states of the session
	CacheBytes uint64
	// part of cached_tokens that came from the engine's prefix cache
	PrefixCacheTokens int64
	// drafts verified
	DraftedTokens int64
	// drafts accepted
	AcceptedTokens int64
	// forward passes that verified drafts
	DraftSteps int64
	// tokens per draft step: 1 + accepted drafts; 0 without steps
	AcceptanceLength float64
	// share of steps that accepted their first draft; 0 without steps
	FirstAcceptance float64
}

func newStats(c *C.dsv4_session_stats) (out Stats) {
	out.Alarms = Alarms(c.alarms)
	out.Seed = uint64(c.seed)
	out.ContextTokens = int64(c.context_tokens)
	out.UsedTokens = int64(c.used_tokens)
	out.PromptTokens = int64(c.prompt_tokens)
	out.CachedTokens = int64(c.cached_tokens)
	out.PrefilledTokens = int64(c.prefilled_tokens)
	out.GeneratedTokens = int64(c.generated_tokens)
	out.PrefillSeconds = float64(c.prefill_seconds)
	out.DecodeSeconds = float64(c.decode_seconds)
	out.CacheBytes = uint64(c.cache_bytes)
	out.PrefixCacheTokens = int64(c.prefix_cache_tokens)
	out.DraftedTokens = int64(c.drafted_tokens)
	out.AcceptedTokens = int64(c.accepted_tokens)
	out.DraftSteps = int64(c.draft_steps)
	out.AcceptanceLength = float64(c.acceptance_length)
	out.FirstAcceptance = float64(c.first_acceptance)
	return out
}
