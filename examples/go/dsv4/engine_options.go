// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import "unsafe"

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

func (o *EngineOptions) c(memory *arena) *C.dsv4_engine_options {
	c := (*C.dsv4_engine_options)(memory.zeroed(C.sizeof_dsv4_engine_options))
	c.struct_size = C.sizeof_dsv4_engine_options
	if o == nil {
		return c
	}
	c.tuning_dir = memory.cString("tuning_dir", o.TuningDir)
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
	c.group_id = memory.cString("group_id", o.GroupID)
	c.group_size = C.int32_t(o.GroupSize)
	c.group_rank = C.int32_t(o.GroupRank)
	c.expert_profile = memory.cString("expert_profile", o.ExpertProfile)
	c.skip_canary = flag(o.SkipCanary)
	return c
}

func (o *EngineOptions) progress() ProgressFunc {
	if o == nil {
		return nil
	}
	return o.Progress
}
