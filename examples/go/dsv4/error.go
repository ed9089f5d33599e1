// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import "fmt"

// Error is why a call failed.
type Error struct {
	Code     Code
	Message  string // one line that names the file, key, tensor, argument or value at fault
	Argument string // the C name of the argument that was refused; "" where none is at fault
	// Why a call was cancelled: the context's error, or what a function of the caller returned.
	Cause error
}

func (e *Error) Error() string { return e.Code.Error() + ": " + e.Message }

// Is makes errors.Is(err, dsv4.NotFound) work.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

func (e *Error) Unwrap() error { return e.Cause }

func cancelled(cause error) error {
	return &Error{Code: Cancelled, Message: cause.Error(), Cause: cause}
}

func invalid(argument, format string, values ...any) error {
	return &Error{Code: InvalidArgument, Message: fmt.Sprintf(format, values...), Argument: argument}
}

// takeError takes over what a failed call left, which belongs to the caller.
func takeError(status C.dsv4_status, failure *C.dsv4_error) error {
	defer C.dsv4_error_free(failure)
	return &Error{
		Code:     Code(status),
		Message:  C.GoString(C.dsv4_error_get_message(failure)),
		Argument: C.GoString(C.dsv4_error_get_argument(failure)),
	}
}

// failing is a call of C that may fail.
type failing func(failure **C.dsv4_error) C.dsv4_status

// check makes the call.
func check(call failing) error {
	var failure *C.dsv4_error
	if status := call(&failure); status != C.DSV4_OK {
		return takeError(status, failure)
	}
	return nil
}
