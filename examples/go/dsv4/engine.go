// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import (
	"context"
	"unsafe"
)

// EngineOptions is how a model is opened. 0 is the library's default, which Engine.Info tells.
type EngineOptions struct {
	Backend            Backend
	Numerics           Numerics
	Devices            []int32 // indices of the backend's devices; empty: its first
	ContextTokens      int64   // longest session
	CacheTokens        int64   // compressed rows of all sessions together
	MaxSessions        int32   // open at a time
	PrefillChunkTokens int32
	Threads            int32
	CacheFormat        CacheFormat
	MaxDraftTokens     int32        // most that sessions may ask for
	TuningDir          string       // of tuning files to use instead of the library's own
	Drafter            Drafter      // who drafts, where MaxDraftTokens is above 0
	DeviceWeightBytes  int64        // most on each device; routed experts beyond it lie in host memory
	HostWeightBytes    int64        // most of routed experts in host memory; others stay on disk
	Progress           ProgressFunc // is told of the bytes loaded
	GroupID            string       // of CreateGroupID; empty without a group
	GroupSize          int32        // processes that split the model, one device each; 0 without a group
	GroupRank          int32        // 0 opens the engine, the others ServeGroup
	ExpertProfile      string       // file of how often experts are used, read at open, written every five minutes and at close
	CPUExperts         int32        // of each layer, that the CPU computes concurrently with a GPU; results differ
	SkipCanary         bool         // neither reads nor computes the folder's canary
}

func (o *EngineOptions) c(memory *arena) (*C.dsv4_engine_options, error) {
	c := (*C.dsv4_engine_options)(memory.zeroed(C.sizeof_dsv4_engine_options))
	c.struct_size = C.sizeof_dsv4_engine_options
	if o == nil {
		return c, nil
	}
	directory, err := memory.cString("tuning_dir", o.TuningDir)
	if err != nil {
		return nil, err
	}
	c.tuning_dir = directory
	c.backend = C.dsv4_backend(o.Backend)
	c.numerics = C.dsv4_numerics(o.Numerics)
	c.device_count = C.uint32_t(len(o.Devices))
	c.devices = (*C.int32_t)(unsafe.Pointer(array(memory, o.Devices)))
	c.context_tokens = C.int64_t(o.ContextTokens)
	c.cache_tokens = C.int64_t(o.CacheTokens)
	c.max_sessions = C.int32_t(o.MaxSessions)
	c.prefill_chunk_tokens = C.int32_t(o.PrefillChunkTokens)
	c.threads = C.int32_t(o.Threads)
	c.cache_format = C.dsv4_cache_format(o.CacheFormat)
	c.max_draft_tokens = C.int32_t(o.MaxDraftTokens)
	c.drafter = C.dsv4_drafter(o.Drafter)
	c.device_weight_bytes = C.int64_t(o.DeviceWeightBytes)
	c.host_weight_bytes = C.int64_t(o.HostWeightBytes)
	c.cpu_experts = C.int32_t(o.CPUExperts)
	group, err := memory.cString("group_id", o.GroupID)
	if err != nil {
		return nil, err
	}
	c.group_id = group
	c.group_size = C.int32_t(o.GroupSize)
	c.group_rank = C.int32_t(o.GroupRank)
	profile, err := memory.cString("expert_profile", o.ExpertProfile)
	if err != nil {
		return nil, err
	}
	c.expert_profile = profile
	if o.SkipCanary {
		c.skip_canary = 1
	}
	return c, nil
}

// EngineInfo is the effective configuration of an engine and its memory.
type EngineInfo struct {
	Backend            Backend
	Numerics           Numerics
	Threads            int32
	ContextTokens      int64
	CacheTokens        int64
	MaxSessions        int32
	PrefillChunkTokens int32
	VocabSize          int32
	HasTokenizer       bool
	HasMTP             bool
	BOSToken           int32
	EOSToken           int32
	Layers             int32
	WeightBytes        uint64
	CacheBytes         uint64
	WorkspaceBytes     uint64
	CacheFormat        CacheFormat
	MaxDraftTokens     int32
	CacheWindowBytes   uint64
	CacheCompressedBytes    uint64
	CacheIndexBytes    uint64
	CacheStateBytes    uint64

	DeviceCount          int32
	StepExchanges        int32  // between devices, of a step that gives logits
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
}

func newEngineInfo(c *C.dsv4_engine_info) EngineInfo {
	return EngineInfo{
		Backend:            Backend(c.backend),
		Numerics:           Numerics(c.numerics),
		Threads:            int32(c.threads),
		ContextTokens:      int64(c.context_tokens),
		CacheTokens:        int64(c.cache_tokens),
		MaxSessions:        int32(c.max_sessions),
		PrefillChunkTokens: int32(c.prefill_chunk_tokens),
		VocabSize:          int32(c.vocab_size),
		HasTokenizer:       c.has_tokenizer != 0,
		HasMTP:             c.has_mtp != 0,
		BOSToken:           int32(c.bos_token),
		EOSToken:           int32(c.eos_token),
		Layers:             int32(c.layers),
		WeightBytes:        uint64(c.weight_bytes),
		CacheBytes:         uint64(c.cache_bytes),
		WorkspaceBytes:     uint64(c.workspace_bytes),
		CacheFormat:        CacheFormat(c.cache_format),
		MaxDraftTokens:     int32(c.max_draft_tokens),
		CacheWindowBytes:   uint64(c.cache_window_bytes),
		CacheCompressedBytes:    uint64(c.cache_compressed_bytes),
		CacheIndexBytes:    uint64(c.cache_index_bytes),
		CacheStateBytes:    uint64(c.cache_state_bytes),

		DeviceCount:          int32(c.device_count),
		StepExchanges:        int32(c.step_exchanges),
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
	}
}

// EngineMetrics is what an engine has done since it was opened, and what it holds now.
type EngineMetrics struct {
	DeviceLost         bool
	Sessions           int32
	WaitingRequests    int32
	Steps              uint64
	StepSeconds        float64
	StepTokens         uint64
	CancelledRequests  uint64
	FailedRequests     uint64
	PromptTokens       uint64
	ReusedTokens       uint64
	PrefixCacheTokens  uint64
	PrefilledTokens    uint64
	GeneratedTokens    uint64
	DraftSteps         uint64
	DraftedTokens      uint64
	AcceptedTokens     uint64
	ExchangedBytes     uint64
	WindowBlocks       int32
	WindowBlocksUsed   int32
	WindowBlocksCached int32
	CompressedKvBlocks        int32
	CompressedKvBlocksUsed    int32
	CompressedKvBlocksCached  int32
	StateSlots         int32
	StateSlotsUsed     int32
	StateSlotsCached   int32
	Suspended          bool

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

	CPUExpertReads uint64 // experts that the CPU computed
	CPUReadBytes   uint64
	CPUSeconds     float64

	DeviceReadSeconds float64 // estimates, by the rate of copies
	HostReadSeconds   float64
}

// EngineIdentity is what an engine's results were made on and of.
type EngineIdentity struct {
	Device       string
	WeightFormat string
	Fingerprint  string // tells checkpoints apart; saved sessions carry it

	BackendReason string // why no GPU was taken; empty where one was, or none was asked for
}

// Engine is one model in memory.
type Engine struct {
	handle
	c *C.dsv4_engine
}

// Open opens the model folder path. options may be nil.
func Open(ctx context.Context, path string, options *EngineOptions) (*Engine, error) {
	if err := checkABI(); err != nil {
		return nil, err
	}
	var memory arena
	defer memory.free()
	cPath, err := memory.cString("path", path)
	if err != nil {
		return nil, err
	}
	cOptions, err := options.c(&memory)
	if err != nil {
		return nil, err
	}
	var function ProgressFunc
	if options != nil {
		function = options.Progress
	}
	engine := &Engine{}
	err = withProgress(ctx, function, func(progress C.dsv4_progress_fn, user unsafe.Pointer) error {
		cOptions.progress, cOptions.progress_user = progress, user
		return check(func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_engine_open(cPath, cOptions, &engine.c, failure)
		})
	})
	if err != nil {
		return nil, err
	}
	engine.handle = handle{what: "engine", free: func() { C.dsv4_engine_close(engine.c) }}
	return engine, nil
}

// Plan returns what Open would say, and the exact bytes it would take, without loading weights.
func Plan(path string, options *EngineOptions) (EngineInfo, error) {
	if err := checkABI(); err != nil {
		return EngineInfo{}, err
	}
	var memory arena
	defer memory.free()
	cPath, err := memory.cString("path", path)
	if err != nil {
		return EngineInfo{}, err
	}
	cOptions, err := options.c(&memory)
	if err != nil {
		return EngineInfo{}, err
	}
	info := C.dsv4_engine_info{struct_size: C.sizeof_dsv4_engine_info}
	err = check(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_plan(cPath, cOptions, &info, failure)
	})
	return newEngineInfo(&info), err
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

// PlanDevice returns what Plan does, of one device of the engine.
func PlanDevice(path string, options *EngineOptions, device int32) (DeviceInfo, error) {
	if err := checkABI(); err != nil {
		return DeviceInfo{}, err
	}
	var memory arena
	defer memory.free()
	cPath, err := memory.cString("path", path)
	if err != nil {
		return DeviceInfo{}, err
	}
	cOptions, err := options.c(&memory)
	if err != nil {
		return DeviceInfo{}, err
	}
	info := C.dsv4_device_info{struct_size: C.sizeof_dsv4_device_info}
	err = check(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_plan_device(cPath, cOptions, C.int32_t(device), &info, failure)
	})
	return newDeviceInfo(&info), err
}

// CreateGroupID makes the id of a new group of GroupSize processes that split a model, to be carried to
// all of them. It carries the options that they have in common.
func CreateGroupID(options *EngineOptions) (string, error) {
	if err := checkABI(); err != nil {
		return "", err
	}
	var memory arena
	defer memory.free()
	cOptions, err := options.c(&memory)
	if err != nil {
		return "", err
	}
	return fillText(1024, func(id *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_group_create_id(cOptions, id, capacity, needed, failure)
	})
}

// ServeGroup loads this process's part of the model and computes what the process of rank 0 asks for,
// until that closes its engine. Where ctx or the options' Progress end it, they end the group.
func ServeGroup(ctx context.Context, path string, options *EngineOptions) error {
	if err := checkABI(); err != nil {
		return err
	}
	var memory arena
	defer memory.free()
	cPath, err := memory.cString("path", path)
	if err != nil {
		return err
	}
	cOptions, err := options.c(&memory)
	if err != nil {
		return err
	}
	var function ProgressFunc
	if options != nil {
		function = options.Progress
	}
	return withProgress(ctx, function, func(progress C.dsv4_progress_fn, user unsafe.Pointer) error {
		cOptions.progress, cOptions.progress_user = progress, user
		return check(func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_group_serve(cPath, cOptions, failure)
		})
	})
}

// Inspect describes a model folder as a JSON object, from the headers of its files.
func Inspect(path string) (string, error) {
	if err := checkABI(); err != nil {
		return "", err
	}
	var memory arena
	defer memory.free()
	cPath, err := memory.cString("path", path)
	if err != nil {
		return "", err
	}
	return fillText(4096, func(json *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_inspect(cPath, json, capacity, needed, failure)
	})
}

// Close frees the engine; sessions keep what they need. Its tokenizer is closed with it.
func (e *Engine) Close() { e.close(nil) }

// use makes a call that may run concurrently with others.
func (e *Engine) use(call func(failure **C.dsv4_error) C.dsv4_status) error {
	if err := e.acquire(false); err != nil {
		return err
	}
	defer e.release()
	return check(call)
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
		DeviceLost:         c.device_lost != 0,
		Sessions:           int32(c.sessions),
		WaitingRequests:    int32(c.waiting_requests),
		Steps:              uint64(c.steps),
		StepSeconds:        float64(c.step_seconds),
		StepTokens:         uint64(c.step_tokens),
		CancelledRequests:  uint64(c.cancelled_requests),
		FailedRequests:     uint64(c.failed_requests),
		PromptTokens:       uint64(c.prompt_tokens),
		ReusedTokens:       uint64(c.reused_tokens),
		PrefixCacheTokens:  uint64(c.prefix_cache_tokens),
		PrefilledTokens:    uint64(c.prefilled_tokens),
		GeneratedTokens:    uint64(c.generated_tokens),
		DraftSteps:         uint64(c.draft_steps),
		DraftedTokens:      uint64(c.drafted_tokens),
		AcceptedTokens:     uint64(c.accepted_tokens),
		ExchangedBytes:     uint64(c.exchanged_bytes),
		WindowBlocks:       int32(c.window_blocks),
		WindowBlocksUsed:   int32(c.window_blocks_used),
		WindowBlocksCached: int32(c.window_blocks_cached),
		CompressedKvBlocks:        int32(c.compressed_kv_blocks),
		CompressedKvBlocksUsed:    int32(c.compressed_kv_blocks_used),
		CompressedKvBlocksCached:  int32(c.compressed_kv_blocks_cached),
		StateSlots:         int32(c.state_slots),
		StateSlotsUsed:     int32(c.state_slots_used),
		StateSlotsCached:   int32(c.state_slots_cached),
		Suspended:          c.suspended != 0,

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
		CPUExpertReads:    uint64(c.cpu_expert_reads),
		CPUReadBytes:      uint64(c.cpu_read_bytes),
		CPUSeconds:        float64(c.cpu_seconds),
		DeviceReadSeconds: float64(c.device_read_seconds),
		HostReadSeconds:   float64(c.host_read_seconds),
	}, err
}

// MetricsJSON returns the same as a JSON object.
func (e *Engine) MetricsJSON() (string, error) {
	if err := e.acquire(false); err != nil {
		return "", err
	}
	defer e.release()
	return fillText(2048, func(json *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_get_metrics_json(e.c, json, capacity, needed, failure)
	})
}

// Suspend gives the engine's memory back and keeps its sessions, whose calls fail with Suspended
// until Resume: in host memory, or in a file of folder if that is not empty. It waits for calls
// that have begun.
func (e *Engine) Suspend(folder string) error {
	var memory arena
	defer memory.free()
	var cFolder *C.char
	if folder != "" {
		var err error
		if cFolder, err = memory.cString("folder", folder); err != nil {
			return err
		}
	}
	return e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_suspend(e.c, cFolder, failure)
	})
}

// Resume loads the weights again; sessions continue with the same bits. progress may be nil. An engine
// that fails to resume stays suspended with nothing lost.
func (e *Engine) Resume(ctx context.Context, progress ProgressFunc) error {
	return withProgress(ctx, progress, func(function C.dsv4_progress_fn, user unsafe.Pointer) error {
		return e.use(func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_engine_resume(e.c, function, user, failure)
		})
	})
}

// Device returns the planned memory of one device, from 0 to Info's DeviceCount - 1.
func (e *Engine) Device(device int32) (DeviceInfo, error) {
	info := C.dsv4_device_info{struct_size: C.sizeof_dsv4_device_info}
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_get_device(e.c, C.int32_t(device), &info, failure)
	})
	return newDeviceInfo(&info), err
}

// Identity returns device, weight format and the checkpoint's fingerprint.
func (e *Engine) Identity() (EngineIdentity, error) {
	if err := e.acquire(false); err != nil {
		return EngineIdentity{}, err
	}
	defer e.release()
	identity := C.dsv4_engine_identity{struct_size: C.sizeof_dsv4_engine_identity}
	err := check(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_get_identity(e.c, &identity, failure)
	})
	if err != nil {
		return EngineIdentity{}, err
	}
	return EngineIdentity{
		Device:       C.GoString(identity.device),
		WeightFormat: C.GoString(identity.weight_format),
		Fingerprint:  C.GoString(identity.fingerprint),

		BackendReason: C.GoString(identity.backend_reason),
	}, nil
}

// Sampling returns the model's own sampling parameters.
func (e *Engine) Sampling() (Sampling, error) {
	c := C.dsv4_sampling{struct_size: C.sizeof_dsv4_sampling}
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_sampling_init(e.c, &c, failure)
	})
	if err != nil {
		return Sampling{}, err
	}
	return newSampling(&c), nil
}

// Tokenizer returns the engine's tokenizer, which is closed with the engine.
func (e *Engine) Tokenizer() (*Tokenizer, error) {
	var c *C.dsv4_tokenizer
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_get_tokenizer(e.c, &c, failure)
	})
	if err != nil {
		return nil, err
	}
	return &Tokenizer{handle: &e.handle, c: c}, nil
}

// NewSession opens an empty session. options may be nil.
func (e *Engine) NewSession(options *SessionOptions) (*Session, error) {
	var memory arena
	defer memory.free()
	cOptions := options.c(&memory)
	var session *C.dsv4_session
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_open(e.c, cOptions, &session, failure)
	})
	if err != nil {
		return nil, err
	}
	return newSession(session), nil
}

// NewConversation opens a session that knows its messages, perhaps none yet. Both options may be nil.
func (e *Engine) NewConversation(messages []Message, options *SessionOptions,
	chat *ChatOptions) (*Conversation, error) {
	var memory arena
	defer memory.free()
	cMessages, count := memory.messages(messages)
	cOptions, cChat := options.c(&memory), chat.c(&memory)
	var session *C.dsv4_session
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_open_messages(e.c, cOptions, cMessages, count, cChat, &session, failure)
	})
	if err != nil {
		return nil, err
	}
	return &Conversation{session: newSession(session)}, nil
}

// NewConversationJSON takes the messages as JSON in the form of OpenAI's chat API.
func (e *Engine) NewConversationJSON(messages string, options *SessionOptions,
	chat *ChatOptions) (*Conversation, error) {
	var memory arena
	defer memory.free()
	json, length := memory.text(messages)
	cOptions, cChat := options.c(&memory), chat.c(&memory)
	var session *C.dsv4_session
	err := e.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_open_json(e.c, cOptions, json, C.size_t(length), cChat, &session,
			failure)
	})
	if err != nil {
		return nil, err
	}
	return &Conversation{session: newSession(session)}, nil
}

// StepResult is what Engine.Step did with one session.
type StepResult struct {
	Step Step
	Err  error
}

// Step steps several sessions of this engine in one pass. Where a prompt is still pending the token
// is -1: call again. A session's failure is its own; the error returned is of the call itself.
func (e *Engine) Step(ctx context.Context, sessions ...*Session) ([]StepResult, error) {
	return e.stepAll(ctx, sessions, func(memory *arena, p *pass,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_step(e.c, p.sessions, p.count, p.results, p.statuses,
			p.errors, failure)
	})
}

// StepConversations does the same with conversations: what it decides is for Events of each, which
// then compute nothing until that is taken.
func (e *Engine) StepConversations(ctx context.Context,
	conversations ...*Conversation) ([]StepResult, error) {
	sessions := make([]*Session, len(conversations))
	users := make([]unsafe.Pointer, len(conversations))
	for i, conversation := range conversations {
		sessions[i] = conversation.session
		user := newUserData(&conversation.events)
		defer user.delete()
		users[i] = user.pointer()
	}
	outcomes, err := e.stepAll(ctx, sessions, func(memory *arena, p *pass,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_step_events(e.c, p.sessions, p.count, parserEventFn,
			array(memory, users), p.results, p.statuses, p.errors, failure)
	})
	for i, outcome := range outcomes {
		if outcome.Err == nil {
			conversations[i].finish = outcome.Step.Finish
		}
	}
	return outcomes, err
}

// pass is what the calls that step several sessions take.
type pass struct {
	sessions **C.dsv4_session
	count    C.size_t
	results  **C.dsv4_step_result
	statuses *C.dsv4_status
	errors   **C.dsv4_error
}

// stepAll makes the call that step is of a pass over the sessions.
func (e *Engine) stepAll(ctx context.Context, sessions []*Session,
	step func(memory *arena, p *pass,
		failure **C.dsv4_error) C.dsv4_status) ([]StepResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, cancelled(err)
	}
	if err := e.acquire(false); err != nil {
		return nil, err
	}
	defer e.release()
	var memory arena
	defer memory.free()
	count := len(sessions)
	pointers := make([]*C.dsv4_session, count)
	results := make([]*C.dsv4_step_result, count)
	for i, session := range sessions {
		if err := session.acquire(true); err != nil {
			return nil, err
		}
		defer session.release()
		pointers[i] = session.c
		results[i] = (*C.dsv4_step_result)(memory.zeroed(C.sizeof_dsv4_step_result))
		results[i].struct_size = C.sizeof_dsv4_step_result
	}
	statuses := make([]C.dsv4_status, count)
	failures := make([]*C.dsv4_error, count)
	cPass := pass{array(&memory, pointers), C.size_t(count), array(&memory, results),
		pointer(statuses), pointer(failures)}
	unwatch := watch(ctx, pointers...)
	err := check(func(failure **C.dsv4_error) C.dsv4_status {
		return step(&memory, &cPass, failure)
	})
	unwatch()
	outcomes := make([]StepResult, count)
	for i, session := range sessions {
		var own error
		if err == nil && statuses[i] != C.DSV4_OK {
			own = takeError(statuses[i], failures[i])
		}
		// Of each session, also when another one's mask has panicked.
		defer func(i int, session *Session) {
			outcomes[i].Err = session.outcome(ctx, own)
		}(i, session)
		if err == nil && own == nil {
			outcomes[i].Step = newStep(results[i])
		}
	}
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}
