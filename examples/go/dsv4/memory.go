// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
// #include <stdlib.h>
// #include <string.h>
import "C"

import (
	"runtime"
	"strings"
	"unsafe"
)

// arena is memory of C for the arguments of one call: structs of C must not hold pointers of Go.
type arena struct {
	blocks  []unsafe.Pointer
	grammar *Grammar // that a block points to: not freed before
	err     error    // the first of an argument that C cannot take
}

// check makes the call, if it has all arguments.
func (a *arena) check(call failing) error {
	if a.err != nil {
		return a.err
	}
	return check(call)
}

func (a *arena) free() {
	runtime.KeepAlive(a.grammar)
	for _, block := range a.blocks {
		C.free(block)
	}
}

// zeroed never returns nil: cgo's malloc ends the program, as Go's own does.
func (a *arena) zeroed(size uintptr) unsafe.Pointer {
	block := C.malloc(C.size_t(size))
	C.memset(block, 0, C.size_t(size))
	a.blocks = append(a.blocks, block)
	return block
}

// array copies values; nil for none, as the structs of C have it.
func array[T any](a *arena, values []T) *T {
	if len(values) == 0 {
		return nil
	}
	block := (*T)(a.zeroed(uintptr(len(values)) * unsafe.Sizeof(values[0])))
	copy(unsafe.Slice(block, len(values)), values)
	return block
}

func (a *arena) text(text string) (*C.char, C.uint64_t) {
	return (*C.char)(unsafe.Pointer(array(a, []byte(text)))), C.uint64_t(len(text))
}

// textNotNil has a pointer for empty texts, too.
func (a *arena) textNotNil(text string) (*C.char, C.uint64_t) {
	return (*C.char)(unsafe.Pointer(array(a, append([]byte(text), 0)))), C.uint64_t(len(text))
}

// cString is NUL-terminated; one within the text is an error.
func (a *arena) cString(argument, text string) *C.char {
	if a.err == nil && strings.IndexByte(text, 0) >= 0 {
		a.err = invalid(argument, "%s holds a NUL byte", argument)
	}
	c, _ := a.textNotNil(text)
	return c
}

// pointer is for arguments that are read during the call; nil for none.
func pointer[T any](values []T) *T {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

func textPointer(text []byte) *C.char { return (*C.char)(unsafe.Pointer(pointer(text))) }

func ids(tokens []int32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(pointer(tokens))) }

func flag(value bool) C.int32_t {
	if value {
		return 1
	}
	return 0
}

func goText(text *C.char, length C.uint64_t) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(text)), int(length)))
}

// filling is a call that writes up to capacity values and tells how many there are.
type filling[T any] func(data *T, capacity C.size_t, needed *C.size_t,
	failure **C.dsv4_error) C.dsv4_status

// fill gets a result of unknown length: asks with room for guess values, and again with what is needed.
// caller makes each call: check, or one that makes sure of something before.
func fill[T any](caller func(failing) error, guess int, call filling[T]) ([]T, error) {
	values := make([]T, guess)
	for {
		var needed C.size_t
		err := caller(func(failure **C.dsv4_error) C.dsv4_status {
			return call(pointer(values), C.size_t(len(values)), &needed, failure)
		})
		if err != nil {
			return nil, err
		}
		if int(needed) <= len(values) {
			return values[:needed], nil
		}
		values = make([]T, needed)
	}
}

func fillText(caller func(failing) error, guess int, call filling[C.char]) (string, error) {
	text, err := fill(caller, guess, func(data *byte, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return call((*C.char)(unsafe.Pointer(data)), capacity, needed, failure)
	})
	return string(text), err
}

func fillTokens(caller func(failing) error, guess int, call filling[C.int32_t]) ([]int32, error) {
	return fill(caller, guess, func(data *int32, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return call((*C.int32_t)(unsafe.Pointer(data)), capacity, needed, failure)
	})
}
