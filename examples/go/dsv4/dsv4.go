// SPDX-License-Identifier: Apache-2.0

// Package dsv4 is Go over libdsv4, which runs DeepSeek V4 Flash.
//
// An Engine is one model in memory, a Session one timeline of tokens on it, a Conversation a session
// that knows its messages; a Tokenizer and a Parser work without either. Each has a Close that may
// be called at any time, by any goroutine, and more than once: calls that are under way end first
// (those of a session are cancelled), later ones are refused. There are no finalizers.
//
// Engines and tokenizers are for any number of goroutines at once. Sessions, conversations and
// parsers are for one at a time: another one's call gets Busy. None cares for the thread that a
// goroutine is on. A Context that ends cancels what is computed; the error is then both Cancelled
// and the context's own, and the session can continue.
//
// Functions given to the library may panic: the call that they were given to is cancelled, and the
// panic continues from there. They must not call runtime.Goexit, as t.FailNow does. Reference and
// limits of every call stand in the C headers, <dsv4/dsv4.h>, under the same names.
package dsv4

/*
#cgo pkg-config: dsv4
#include <dsv4/dsv4.h>
*/
import "C"

import "fmt"

// Version returns the library's version, as in "0.1.0".
func Version() string { return C.GoString(C.dsv4_get_version()) }

// BuildInfo returns one line: version, commit, compiler, backends and the instruction set in use.
func BuildInfo() string { return C.GoString(C.dsv4_get_build_info()) }

// A library of another ABI: nothing else of it may be called.
func checkABI() error {
	if its := C.dsv4_get_abi_version(); its != C.DSV4_ABI_VERSION {
		message := fmt.Sprintf("libdsv4 has ABI %d, this program is for %d", its, C.DSV4_ABI_VERSION)
		return &Error{Code: VersionMismatch, Message: message}
	}
	return nil
}
