// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import (
	"context"
	"unsafe"
)

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
		return C.dsv4_engine_step(e.c, p.sessions, p.count, nil, nil, p.results, p.statuses,
			p.errors, failure)
	})
}

// StepConversations does the same with conversations: what it decides is for Events of each, which
// then compute nothing until that is taken.
func (e *Engine) StepConversations(ctx context.Context,
	conversations ...*Conversation) ([]StepResult, error) {
	sessions := make([]*Session, len(conversations))
	users := make([]unsafe.Pointer, len(conversations))
	known := make([]int, len(conversations))
	for i, conversation := range conversations {
		sessions[i] = conversation.session
		known[i] = len(conversation.events)
		user := newUserData(&conversation.events)
		defer user.delete()
		users[i] = user.pointer()
	}
	outcomes, err := e.stepAll(ctx, sessions, func(memory *arena, p *pass,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_engine_step(e.c, p.sessions, p.count, parserEventFn,
			array(memory, users), p.results, p.statuses, p.errors, failure)
	})
	for i, outcome := range outcomes {
		if outcome.Err == nil {
			conversations[i].record(known[i])
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
	unwatch := watch(ctx, sessions...)
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
