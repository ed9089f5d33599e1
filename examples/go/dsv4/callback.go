// SPDX-License-Identifier: Apache-2.0

package dsv4

/*
#include <dsv4/dsv4.h>
#include <stdlib.h>

typedef const char* dsv4_go_text;
typedef const dsv4_parser_event* dsv4_go_event;

extern int32_t dsv4_go_progress(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                                dsv4_progress_unit unit);
extern void dsv4_go_parser_event(void* user, dsv4_go_event event);
extern void dsv4_go_log(void* user, dsv4_log_level level, dsv4_go_text message);
*/
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
	"unsafe"
)

var (
	progressFn    = C.dsv4_progress_fn(C.dsv4_go_progress)
	parserEventFn = C.dsv4_parser_event_fn(C.dsv4_go_parser_event)
	logFn         = C.dsv4_log_fn(C.dsv4_go_log)
)

// userData is what C passes to a callback: a cell of its memory that holds a handle of a Go value.
type userData struct {
	cell *cgo.Handle
}

func newUserData(value any) userData {
	cell := (*cgo.Handle)(C.malloc(C.size_t(unsafe.Sizeof(cgo.Handle(0)))))
	*cell = cgo.NewHandle(value)
	return userData{cell}
}

func (u userData) pointer() unsafe.Pointer { return unsafe.Pointer(u.cell) }

func (u userData) delete() {
	if u.cell != nil {
		u.cell.Delete()
		C.free(unsafe.Pointer(u.cell))
	}
}

func valueOf(user unsafe.Pointer) any { return (*cgo.Handle)(user).Value() }

// callback keeps what a function of the caller did below C, for the call above it.
type callback struct {
	err      error
	panicked bool
	panic    any
}

// run reports whether C may continue.
func (c *callback) run(function func() error) bool {
	finished := false
	defer func() {
		if !finished {
			c.panicked, c.panic = true, recover()
		}
	}()
	if !c.panicked && c.err == nil {
		c.err = function()
	}
	finished = true
	return c.err == nil
}

// outcome is that of the call: a panic continues, and what cancelled the call is the cause of its error.
func (c *callback) outcome(err error) error {
	panicked, value, cause := c.panicked, c.panic, c.err
	*c = callback{}
	if panicked {
		panic(value)
	}
	if failure, ok := err.(*Error); ok && failure.Code == Cancelled && cause != nil {
		failure.Cause = cause
	}
	return err
}

func stopped(goesOn bool) C.int32_t { return flag(!goesOn) }

// Progress is how far a call has come: Done of Total.
type Progress struct {
	Phase       ProgressPhase
	Done, Total uint64
	Unit        ProgressUnit
}

// ProgressFunc may return an error to cancel the call; it is then the Cause of the call's error.
type ProgressFunc func(Progress) error

type progressCall struct {
	callback
	ctx      context.Context
	function ProgressFunc
}

// withProgress makes a call that ctx and function can cancel.
func withProgress(ctx context.Context, function ProgressFunc,
	call func(progress C.dsv4_progress_fn, user unsafe.Pointer) error) error {
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	progress := &progressCall{ctx: ctx, function: function}
	user := newUserData(progress)
	defer user.delete()
	return progress.outcome(call(progressFn, user.pointer()))
}

//export dsv4_go_progress
func dsv4_go_progress(user unsafe.Pointer, phase C.dsv4_progress_phase, done, total C.uint64_t,
	unit C.dsv4_progress_unit) C.int32_t {
	progress := valueOf(user).(*progressCall)
	return stopped(progress.run(func() error {
		if err := progress.ctx.Err(); err != nil || progress.function == nil {
			return err
		}
		return progress.function(Progress{ProgressPhase(phase), uint64(done), uint64(total),
			ProgressUnit(unit)})
	}))
}

//export dsv4_go_parser_event
func dsv4_go_parser_event(user unsafe.Pointer, event C.dsv4_go_event) {
	events := valueOf(user).(*[]Event)
	*events = append(*events, newEvent(event))
}

// collectEvents makes a call that appends to events.
func collectEvents(events *[]Event,
	call func(append C.dsv4_parser_event_fn, user unsafe.Pointer) error) error {
	user := newUserData(events)
	defer user.delete()
	return call(parserEventFn, user.pointer())
}

// LogFunc gets one line, on whatever thread logs, several at once perhaps. A panic is dropped.
type LogFunc func(level LogLevel, message string)

var currentLog struct {
	mutex sync.Mutex
	user  userData
}

// SetLog gives the process's messages up to level to function; nil silences. When it returns, no call
// of the one before is running or will follow. It must not be called by such a function.
func SetLog(level LogLevel, function LogFunc) {
	currentLog.mutex.Lock()
	defer currentLog.mutex.Unlock()
	before := currentLog.user
	if function == nil {
		currentLog.user = userData{}
		C.dsv4_log_set_callback(nil, nil, C.dsv4_log_level(level))
	} else {
		currentLog.user = newUserData(function)
		C.dsv4_log_set_callback(logFn, currentLog.user.pointer(), C.dsv4_log_level(level))
	}
	before.delete()
}

//export dsv4_go_log
func dsv4_go_log(user unsafe.Pointer, level C.dsv4_log_level, message C.dsv4_go_text) {
	var call callback
	call.run(func() error {
		valueOf(user).(LogFunc)(LogLevel(level), C.GoString(message))
		return nil
	})
}
