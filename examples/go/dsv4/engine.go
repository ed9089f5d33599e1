// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import (
	"context"
	"unsafe"
)

// Engine is one model in memory.
type Engine struct {
	handle
	c *C.dsv4_engine
}

// Open opens the model folder path. options may be nil.
func Open(ctx context.Context, path string, options *EngineOptions) (*Engine, error) {
	memory := arena{err: checkABI()}
	defer memory.free()
	cPath, cOptions := memory.cString("path", path), options.c(&memory)
	engine := &Engine{}
	err := withProgress(ctx, options.progress(), func(progress C.dsv4_progress_fn,
		user unsafe.Pointer) error {
		cOptions.progress, cOptions.progress_user = progress, user
		return memory.check(func(failure **C.dsv4_error) C.dsv4_status {
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
	memory := arena{err: checkABI()}
	defer memory.free()
	cPath, cOptions := memory.cString("path", path), options.c(&memory)
	info := C.dsv4_engine_info{struct_size: C.sizeof_dsv4_engine_info}
	err := memory.check(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_plan(cPath, cOptions, &info, nil, 0, failure)
	})
	return newEngineInfo(&info), err
}

// PlanDevices returns the planned memory of each device of that engine.
func PlanDevices(path string, options *EngineOptions) ([]DeviceInfo, error) {
	plan, err := Plan(path, options)
	if err != nil {
		return nil, err
	}
	memory := arena{}
	defer memory.free()
	cPath, cOptions := memory.cString("path", path), options.c(&memory)
	info := C.dsv4_engine_info{struct_size: C.sizeof_dsv4_engine_info}
	found := make([]C.dsv4_device_info, plan.DeviceCount)
	for i := range found {
		found[i].struct_size = C.sizeof_dsv4_device_info
	}
	err = memory.check(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_plan(cPath, cOptions, &info, &found[0], C.size_t(len(found)), failure)
	})
	if err != nil {
		return nil, err
	}
	devices := make([]DeviceInfo, len(found))
	for i := range found {
		devices[i] = newDeviceInfo(&found[i])
	}
	return devices, nil
}

// ListDevices lists the machine's GPUs, or an entry that says why there is none, then the CPU.
func ListDevices() ([]Device, error) {
	memory := arena{err: checkABI()}
	defer memory.free()
	found := make([]C.dsv4_device, 16)
	for {
		for i := range found {
			found[i] = C.dsv4_device{struct_size: C.sizeof_dsv4_device}
		}
		var needed C.size_t
		err := memory.check(func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_list_devices(&found[0], C.size_t(len(found)), &needed, failure)
		})
		if err != nil {
			return nil, err
		}
		if int(needed) <= len(found) {
			found = found[:needed]
			break
		}
		found = make([]C.dsv4_device, needed)
	}
	devices := make([]Device, len(found))
	for i := range found {
		devices[i] = newDevice(&found[i])
	}
	return devices, nil
}

// CreateGroupID makes the id of a new group of Group.Size processes that split a model, to be carried to
// all of them. It carries the options that they have in common.
func CreateGroupID(options *EngineOptions) (string, error) {
	memory := arena{err: checkABI()}
	defer memory.free()
	cOptions := options.c(&memory)
	return fillText(memory.check, 1024, func(id *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_group_create_id(cOptions, id, capacity, needed, failure)
	})
}

// ServeGroup loads this process's part of the model and computes what the process of rank 0 asks for,
// until that closes its engine. Where ctx or the options' Progress end it, they end the group.
func ServeGroup(ctx context.Context, path string, options *EngineOptions) error {
	memory := arena{err: checkABI()}
	defer memory.free()
	cPath, cOptions := memory.cString("path", path), options.c(&memory)
	return withProgress(ctx, options.progress(), func(progress C.dsv4_progress_fn,
		user unsafe.Pointer) error {
		cOptions.progress, cOptions.progress_user = progress, user
		return memory.check(func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_group_serve(cPath, cOptions, failure)
		})
	})
}

// Inspect describes a model folder as a JSON object, from the headers of its files.
func Inspect(path string) (string, error) {
	memory := arena{err: checkABI()}
	defer memory.free()
	cPath := memory.cString("path", path)
	return fillText(memory.check, 4096, func(json *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_inspect(cPath, json, capacity, needed, failure)
	})
}

// Close frees the engine; sessions keep what they need. Its tokenizer is closed with it.
func (e *Engine) Close() { e.close(nil) }

// Suspend gives the engine's memory back and keeps its sessions, whose calls fail with Suspended
// until Resume: in host memory, or in a file of folder if that is not empty. It waits for calls
// that have begun.
func (e *Engine) Suspend(folder string) error {
	var memory arena
	defer memory.free()
	var cFolder *C.char
	if folder != "" {
		cFolder = memory.cString("folder", folder)
	}
	if memory.err != nil {
		return memory.err
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

// Sampling returns the values that 0 stands for in a Sampling of this model.
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

// NewConversation opens a conversation without messages. options may be nil.
func (e *Engine) NewConversation(options *SessionOptions) (*Conversation, error) {
	session, err := e.NewSession(options)
	if err != nil {
		return nil, err
	}
	return &Conversation{session: session}, nil
}
