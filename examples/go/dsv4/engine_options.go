// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import "unsafe"

// GroupOptions is one process of a group that splits a model, one device each.
type GroupOptions struct {
	Size int32  // number of processes; 0 without a group
	Rank int32  // 0 opens the engine, the others ServeGroup
	ID   string // of CreateGroupID
}

// EngineOptions is how a model is opened. 0 is the library's default, which Engine.Info tells.
type EngineOptions struct {
	Backend            Backend
	Devices            []int32 // indices of the backend's devices; empty: the best
	DeviceCount        uint32  // so many, without Devices; 0: one, or what BackendAuto finds best
	MaxSessions        int32   // open at a time
	ContextTokens      int64   // longest session
	CacheTokens        int64   // compressed rows of all sessions together
	DeviceWeightBytes  int64   // most on each device; routed experts beyond it lie in host memory
	HostWeightBytes    int64   // most of routed experts in host memory; others stay on disk
	PrefillChunkTokens int32
	Threads            int32
	Drafter            Drafter      // who drafts, unless MaxDraftTokens is -1
	MaxDraftTokens     int32        // of a session and step; 0: as usually pays, -1: none
	Progress           ProgressFunc // is told of the bytes loaded
	Group              GroupOptions
	Settings           []string // rare options, as "KEY=VALUE": see dsv4_engine_options.settings
}

func (o *EngineOptions) c(memory *arena) *C.dsv4_engine_options {
	c := (*C.dsv4_engine_options)(memory.zeroed(C.sizeof_dsv4_engine_options))
	c.struct_size = C.sizeof_dsv4_engine_options
	if o == nil {
		return c
	}
	c.backend = C.dsv4_backend(o.Backend)
	c.device_count = C.uint32_t(o.DeviceCount)
	if len(o.Devices) > 0 {
		c.device_count = C.uint32_t(len(o.Devices))
	}
	c.devices = (*C.int32_t)(unsafe.Pointer(array(memory, o.Devices)))
	c.max_sessions = C.int32_t(o.MaxSessions)
	c.context_tokens = C.int64_t(o.ContextTokens)
	c.cache_tokens = C.int64_t(o.CacheTokens)
	c.device_weight_bytes = C.int64_t(o.DeviceWeightBytes)
	c.host_weight_bytes = C.int64_t(o.HostWeightBytes)
	c.prefill_chunk_tokens = C.int32_t(o.PrefillChunkTokens)
	c.threads = C.int32_t(o.Threads)
	c.drafter = C.dsv4_drafter(o.Drafter)
	c.max_draft_tokens = C.int32_t(o.MaxDraftTokens)
	if o.Group.Size != 0 || o.Group.ID != "" {
		c.group = (*C.dsv4_group_options)(memory.zeroed(C.sizeof_dsv4_group_options))
		c.group.struct_size = C.sizeof_dsv4_group_options
		c.group.size = C.int32_t(o.Group.Size)
		c.group.rank = C.int32_t(o.Group.Rank)
		c.group.id = memory.cString("group.id", o.Group.ID)
	}
	settings := make([]*C.char, len(o.Settings))
	for i, setting := range o.Settings {
		settings[i] = memory.cString("settings", setting)
	}
	c.settings, c.setting_count = array(memory, settings), C.uint64_t(len(settings))
	return c
}

func (o *EngineOptions) progress() ProgressFunc {
	if o == nil {
		return nil
	}
	return o.Progress
}
