// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import (
	"context"
	"errors"
	"sync/atomic"
	"unsafe"
)

// SessionOptions is how a session is opened.
type SessionOptions struct {
	Sampling  *Sampling // nil: the model's own
	CacheSalt uint64    // the session shares prefixes with sessions of the same salt alone
}

func (o *SessionOptions) c(memory *arena) *C.dsv4_session_options {
	c := (*C.dsv4_session_options)(memory.zeroed(C.sizeof_dsv4_session_options))
	c.struct_size = C.sizeof_dsv4_session_options
	if o != nil {
		c.cache_salt = C.uint64_t(o.CacheSalt)
		if o.Sampling != nil {
			c.sampling = o.Sampling.c(memory)
		}
	}
	return c
}

// SyncOptions is how Session.Sync is to keep log-probabilities of the prompt.
type SyncOptions struct {
	LogProbsCount int32 // how many of the most likely tokens at each position
	LogProbsBegin int64 // from this position on; 0: none
}

// Step is what one step added.
type Step struct {
	Token  int32 // -1: none yet, of Engine.Step alone
	Finish Finish
	Text   string // what became complete with this token
}

func newStep(c *C.dsv4_step_result) Step {
	return Step{int32(c.token), Finish(c.finish), goText(c.text, C.uint64_t(c.text_length))}
}

// LogProbs are natural log-probabilities at one position.
type LogProbs struct {
	Token float32
	Top   []TokenLogProb // the most likely tokens, most likely first
}

// TokenLogProb is one of LogProbs.Top.
type TokenLogProb struct {
	Token   int32
	LogProb float32
}

// Session is one mutable timeline of tokens.
type Session struct {
	handle
	c       *C.dsv4_session
	stopped atomic.Bool // by Stop
}

func newSession(c *C.dsv4_session) *Session {
	session := &Session{c: c}
	session.handle = handle{what: "session", free: func() {
		C.dsv4_session_close(c)
	}}
	return session
}

// Close frees the session; a call that runs is cancelled.
func (s *Session) Close() { s.close(func() { C.dsv4_session_set_stopped(s.c, 1) }) }

// Stop cancels what another goroutine computes on the session and what begins later, until Resume.
// Any goroutine.
func (s *Session) Stop() {
	s.stopped.Store(true)
	s.whileOpen(func() { C.dsv4_session_set_stopped(s.c, 1) })
}

// Resume takes Stop back.
func (s *Session) Resume() {
	s.stopped.Store(false)
	s.whileOpen(func() { C.dsv4_session_set_stopped(s.c, 0) })
}

// watch stops the sessions when ctx ends, until the function that it returns has been called.
func watch(ctx context.Context, sessions ...*Session) (unwatch func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		for _, session := range sessions {
			C.dsv4_session_set_stopped(session.c, 1)
		}
		<-over
		for _, session := range sessions {
			if !session.stopped.Load() {
				C.dsv4_session_set_stopped(session.c, 0)
			}
		}
	}()
	return func() {
		close(over)
		<-gone
	}
}

// outcome is that of a call: a context that ended is its cause.
func (s *Session) outcome(ctx context.Context, err error) error {
	var failure *Error
	if errors.As(err, &failure) && failure.Code == Cancelled && failure.Cause == nil {
		failure.Cause = ctx.Err()
	}
	return err
}

// compute makes a call that excludes others and that ctx can cancel; then copies its result.
func (s *Session) compute(ctx context.Context, call failing, copied func()) error {
	if err := ctx.Err(); err != nil {
		return cancelled(err)
	}
	if err := s.acquire(true); err != nil {
		return err
	}
	defer s.release()
	unwatch := watch(ctx, s)
	err := check(call)
	unwatch()
	if err = s.outcome(ctx, err); err == nil {
		copied()
	}
	return err
}

// change makes a call that excludes others and computes nothing.
func (s *Session) change(call failing) error {
	return s.compute(context.Background(), call, func() {})
}

// read makes a call that may run concurrently with other readers, and copies its result.
func (s *Session) read(call failing, copied func()) error {
	return s.use(func(failure **C.dsv4_error) C.dsv4_status {
		status := call(failure)
		if status == C.DSV4_OK {
			copied()
		}
		return status
	})
}

// Fork returns another session that continues like this one, allowed tokens included.
func (s *Session) Fork() (*Session, error) {
	var c *C.dsv4_session
	err := s.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_fork(s.c, &c, failure)
	})
	if err != nil {
		return nil, err
	}
	return newSession(c), nil
}

// SetSampling replaces the sampling parameters from the next token on.
func (s *Session) SetSampling(sampling Sampling) error {
	var memory arena
	defer memory.free()
	c := sampling.c(&memory)
	return s.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_set_sampling(s.c, c, failure)
	})
}

// AllowedTokens are the tokens that may come next; token t is bit t % 32 of word t / 32.
type AllowedTokens []uint32

// NewAllowedTokens returns all tokens of a vocabulary: see EngineInfo.VocabSize.
func NewAllowedTokens(vocabSize int32) AllowedTokens {
	allowed := make(AllowedTokens, (vocabSize+31)/32)
	for i := range allowed {
		allowed[i] = ^uint32(0)
	}
	return allowed
}

// Forbid takes a token out.
func (a AllowedTokens) Forbid(token int32) { a[token/32] &^= 1 << (token % 32) }

// AllowOnly takes all others out.
func (a AllowedTokens) AllowOnly(tokens ...int32) {
	for i := range a {
		a[i] = 0
	}
	for _, token := range tokens {
		a[token/32] |= 1 << (token % 32)
	}
}

// SetAllowed restricts the next token, and it alone: a step, a sync and a rewind remove it. Drafts
// pause. nil allows all tokens again.
func (s *Session) SetAllowed(allowed AllowedTokens) error {
	var words *C.uint32_t
	if len(allowed) > 0 {
		words = (*C.uint32_t)(unsafe.Pointer(&allowed[0]))
	}
	return s.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_set_allowed(s.c, words, C.size_t(len(allowed)), failure)
	})
}

// Sync makes the timeline equal to the whole list; rows of what is known already are kept. It computes
// nothing. options may be nil.
func (s *Session) Sync(tokens []int32, options *SyncOptions) (SyncResult, error) {
	cOptions := C.dsv4_sync_options{struct_size: C.sizeof_dsv4_sync_options}
	if options != nil {
		cOptions.log_probs_count = C.int32_t(options.LogProbsCount)
		cOptions.log_probs_begin = C.int64_t(options.LogProbsBegin)
	}
	result := C.dsv4_sync_result{struct_size: C.sizeof_dsv4_sync_result}
	err := s.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_sync(s.c, ids(tokens), C.size_t(len(tokens)), &cOptions, &result,
			failure)
	})
	return newSyncResult(&result), err
}

// Rewind goes back to the first position tokens; returns how many are to be computed again.
func (s *Session) Rewind(position int64) (pending int64, err error) {
	var c C.int64_t
	err = s.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_rewind(s.c, C.int64_t(position), &c, failure)
	})
	return int64(c), err
}

// Prefill computes up to maxTokens pending tokens, 0: all. Returns how many are left. progress may be
// nil.
func (s *Session) Prefill(ctx context.Context, maxTokens int64, progress ProgressFunc) (int64, error) {
	var pending C.int64_t
	err := withProgress(ctx, progress, func(function C.dsv4_progress_fn, user unsafe.Pointer) error {
		return s.compute(ctx, func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_session_prefill(s.c, C.int64_t(maxTokens), function, user, &pending, failure)
		}, func() {})
	})
	return int64(pending), err
}

// Step computes what is pending, chooses one token and appends it.
func (s *Session) Step(ctx context.Context) (step Step, err error) {
	result := C.dsv4_step_result{struct_size: C.sizeof_dsv4_step_result}
	err = s.compute(ctx, func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_step(s.c, nil, nil, &result, failure)
	}, func() { step = newStep(&result) })
	return step, err
}

// Tokens returns the timeline.
func (s *Session) Tokens() (tokens []int32, err error) {
	var c *C.int32_t
	var count C.size_t
	err = s.read(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_get_tokens(s.c, &c, &count, failure)
	}, func() {
		tokens = append(tokens, unsafe.Slice((*int32)(unsafe.Pointer(c)), int(count))...)
	})
	return tokens, err
}

// LogProbs are available for the last token when Sampling.LogProbs was set, and for the prompt as the
// last sync asked.
func (s *Session) LogProbs(position int64) (LogProbs, error) {
	var logProb C.float
	var tokens [20]C.int32_t
	var values [len(tokens)]C.float
	var count C.size_t
	var result LogProbs
	err := s.read(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_get_log_probs(s.c, C.int64_t(position), &logProb, &tokens[0], &values[0],
			C.size_t(len(tokens)), &count, failure)
	}, func() {
		result.Token = float32(logProb)
		for i := 0; i < int(count) && i < len(tokens); i++ {
			result.Top = append(result.Top, TokenLogProb{int32(tokens[i]), float32(values[i])})
		}
	})
	return result, err
}

// Stats returns the session's statistics.
func (s *Session) Stats() (Stats, error) {
	c := C.dsv4_session_stats{struct_size: C.sizeof_dsv4_session_stats}
	err := s.use(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_get_stats(s.c, &c, failure)
	})
	return newStats(&c), err
}

// Save writes timeline, rows, states and logits to a file, which appears when it is whole. progress
// may be nil.
func (s *Session) Save(ctx context.Context, path string, progress ProgressFunc) error {
	var memory arena
	defer memory.free()
	cPath := memory.cString("path", path)
	if memory.err != nil {
		return memory.err
	}
	return withProgress(ctx, progress, func(function C.dsv4_progress_fn, user unsafe.Pointer) error {
		return s.use(func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_session_save(s.c, cPath, function, user, failure)
		})
	})
}

// SaveToMemory returns the same content.
func (s *Session) SaveToMemory() ([]byte, error) {
	return fill(s.use, 0, func(data *byte, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_save_memory(s.c, (*C.uint8_t)(data), capacity, needed, failure)
	})
}

// Load makes the session the one that was saved; sampling and salt stay, but a saved grammar
// takes the place of its own. That of a conversation keeps its messages, and takes what their prompt
// has in common with what was saved. progress may be nil.
func (s *Session) Load(ctx context.Context, path string, progress ProgressFunc) error {
	var memory arena
	defer memory.free()
	cPath := memory.cString("path", path)
	if memory.err != nil {
		return memory.err
	}
	return withProgress(ctx, progress, func(function C.dsv4_progress_fn, user unsafe.Pointer) error {
		return s.change(func(failure **C.dsv4_error) C.dsv4_status {
			return C.dsv4_session_load(s.c, cPath, function, user, failure)
		})
	})
}

// LoadFromMemory is Load of what SaveToMemory returned.
func (s *Session) LoadFromMemory(saved []byte) error {
	return s.change(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_session_load_memory(s.c, (*C.uint8_t)(pointer(saved)), C.size_t(len(saved)),
			failure)
	})
}
