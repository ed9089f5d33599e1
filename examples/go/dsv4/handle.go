// SPDX-License-Identifier: Apache-2.0

package dsv4

import "sync"

// handle counts the calls that use an object of the library, so that closing it waits for them, and
// refuses those that exclude each other.
type handle struct {
	what   string // "session"
	mutex  sync.Mutex
	users  int
	alone  bool // the one user excludes others
	closed bool
	free   func()
}

func (h *handle) acquire(alone bool) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.closed {
		return invalid(h.what, "the %s is closed", h.what)
	}
	if h.alone || alone && h.users > 0 {
		return &Error{Code: Busy, Message: "the " + h.what + " is in use by another goroutine"}
	}
	h.users++
	h.alone = alone
	return nil
}

func (h *handle) release() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.users--
	h.alone = false
	if h.closed && h.users == 0 {
		h.free()
	}
}

// use makes a call that may run concurrently with others.
func (h *handle) use(call failing) error {
	if err := h.acquire(false); err != nil {
		return err
	}
	defer h.release()
	return check(call)
}

// close frees the object now, or with the end of the last call that uses it, after stop was called.
func (h *handle) close(stop func()) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	if h.users == 0 {
		h.free()
	} else if stop != nil {
		stop()
	}
}

// whileOpen runs use while the object cannot be freed.
func (h *handle) whileOpen(use func()) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if !h.closed || h.users > 0 {
		use()
	}
}
