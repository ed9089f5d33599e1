// SPDX-License-Identifier: Apache-2.0

package dsv4

import (
	"context"
	"errors"
	"sync"
)

// Queue answers many conversations on one engine at once. A goroutine steps them all in one pass, each
// with the same results as alone. Requests wait for a session, first come, first served. Where the cache
// is full, kept conversations are closed, then requests wait until others have ended. A suspended engine
// and a lost device are resumed. Any goroutine.
type Queue struct {
	engine      *Engine
	maxSessions int // the engine's
	sessions    int
	kept        *KeptConversations
	ctx         context.Context
	cancel      context.CancelFunc
	wake        chan struct{} // holds one: a request came, or one was cancelled
	gone        chan struct{} // the goroutine has ended

	mutex  sync.Mutex
	inbox  []*Answer
	closed bool
}

// Request is a conversation whose last message is to be answered.
type Request struct {
	Messages []Message
	Chat     *ChatOptions    // may be nil
	Session  *SessionOptions // may be nil

	// The name under which the conversation is kept; "": it is closed. A kept conversation of this name
	// and salt is continued: what its messages have in common with these is not computed again.
	KeepAs string
	// The kept conversation that this one branches from, if none has the name KeepAs.
	Continues string
}

// cacheSalt is the salt of its session.
func (r *Request) cacheSalt() uint64 {
	if r.Session == nil {
		return 0
	}
	return r.Session.CacheSalt
}

// QueueOptions are options of a Queue.
type QueueOptions struct {
	Sessions int // the most requests that are answered at once, up to the engine's MaxSessions; 0: so many
	Kept     int // the most conversations that are kept, up to MaxSessions; 0: so many; -1: none
}

// Answer is what a Queue makes of a Request.
type Answer struct {
	request Request
	ctx     context.Context
	events  chan Event
	done    chan struct{} // closed with the last event

	// The queue's goroutine's.
	kept         *KeptConversations // the queue's
	conversation *Conversation
	parked       bool // the cache was full: goes on when another one has ended
	lost         bool // the device, since the last token

	// Set before done is closed.
	reply  Message
	finish Finish
	stats  Stats
	err    error

	mutex   sync.Mutex
	pending []Event // that nobody has received
	ended   bool
	more    chan struct{} // holds one
}

// NewQueue begins to answer requests. options may be nil.
func (e *Engine) NewQueue(options *QueueOptions) (*Queue, error) {
	info, err := e.Info()
	if err != nil {
		return nil, err
	}
	if options == nil {
		options = &QueueOptions{}
	}
	most := int(info.MaxSessions)
	sessions, kept := options.Sessions, options.Kept
	if sessions <= 0 || sessions > most {
		sessions = most
	}
	if kept == 0 || kept > most {
		kept = most
	} else if kept < 0 {
		kept = 0
	}
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue{engine: e, maxSessions: most, sessions: sessions, kept: NewKeptConversations(kept),
		ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	go q.run()
	return q, nil
}

// Close cancels the answers, waits until they have ended, and closes kept conversations. Events that
// nobody receives by then are dropped. To be called before the engine's.
func (q *Queue) Close() {
	q.mutex.Lock()
	q.closed = true
	q.mutex.Unlock()
	q.cancel()
	<-q.gone
	for q.kept.DropOldest("") {
	}
}

// Kept are the conversations of requests with KeepAs. The host may add to them.
func (q *Queue) Kept() *KeptConversations { return q.kept }

// Submit never blocks. What is wrong with the request, its answer says. The end of ctx ends the answer
// early; it keeps its text.
func (q *Queue) Submit(ctx context.Context, request Request) *Answer {
	answer := &Answer{request: request, ctx: ctx, kept: q.kept, events: make(chan Event),
		done: make(chan struct{}), more: make(chan struct{}, 1)}
	go answer.forward(q.ctx)
	q.mutex.Lock()
	closed := q.closed
	if !closed {
		q.inbox = append(q.inbox, answer)
	}
	q.mutex.Unlock()
	if closed {
		answer.end(FinishCancelled, cancelled(errors.New("the queue is closed")))
		return answer
	}
	poke(q.wake)
	if ctx.Done() != nil {
		go func() {
			select {
			case <-ctx.Done():
				poke(q.wake)
			case <-answer.done:
			}
		}()
	}
	return answer
}

// Events are those of the turn, as they are computed. The channel is closed after the last one, and when
// the context ends while nobody receives. Who stops to receive ends the context.
func (a *Answer) Events() <-chan Event { return a.events }

// Wait waits for the end of the answer; its events need not have been received. A context that ended is
// an error, with the reply as far as it goes.
func (a *Answer) Wait() (reply Message, finish Finish, err error) {
	<-a.done
	return a.reply, a.finish, a.err
}

// Stats are those of the session, after the end of the answer.
func (a *Answer) Stats() Stats {
	<-a.done
	return a.stats
}

// poke fills a channel that holds one.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// put never blocks.
func (a *Answer) put(events []Event) {
	a.mutex.Lock()
	a.pending = append(a.pending, events...)
	a.mutex.Unlock()
	poke(a.more)
}

// forward hands events on to who receives them, until the answer's context or the queue's ends.
func (a *Answer) forward(queue context.Context) {
	defer close(a.events)
	for {
		a.mutex.Lock()
		events, ended := a.pending, a.ended
		a.pending = nil
		a.mutex.Unlock()
		for _, event := range events {
			select {
			case a.events <- event:
			default:
				select {
				case a.events <- event:
				case <-a.ctx.Done():
					return
				case <-queue.Done():
					return
				}
			}
		}
		if ended && len(events) == 0 {
			return
		}
		if !ended {
			<-a.more
		}
	}
}

// end closes or keeps the session. For the queue's goroutine.
func (a *Answer) end(finish Finish, err error) {
	var events []Event
	if conversation := a.conversation; conversation != nil {
		rest, _ := conversation.EndTurn()
		if err != nil {
			events = rest
		}
		a.reply = conversation.Reply()
		a.stats, _ = conversation.Session().Stats()
		if a.request.KeepAs != "" && finish != FinishError {
			a.kept.Put(a.request.KeepAs, conversation, a.request.cacheSalt())
		} else {
			conversation.Close()
		}
		a.conversation = nil
	}
	a.finish, a.err = finish, err
	a.mutex.Lock()
	a.pending = append(a.pending, events...)
	a.ended = true
	a.mutex.Unlock()
	close(a.done)
	poke(a.more)
}

func (q *Queue) run() {
	defer close(q.gone)
	var answers []*Answer // in the order of their requests
	for {
		if len(answers) == 0 {
			select {
			case <-q.wake:
			case <-q.ctx.Done():
			}
		}
		q.mutex.Lock()
		answers = append(answers, q.inbox...)
		q.inbox = nil
		q.mutex.Unlock()
		closing := q.ctx.Err() != nil
		for _, answer := range answers {
			if err := answer.ctx.Err(); err != nil {
				answer.end(FinishCancelled, cancelled(err))
			} else if closing {
				answer.end(FinishCancelled, cancelled(errors.New("the queue is closed")))
			}
		}
		if closing {
			return
		}
		answers = withoutEnded(answers)
		q.open(answers)
		q.step(withoutEnded(answers))
		answers = withoutEnded(answers)
	}
}

func (a *Answer) hasEnded() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// withoutEnded leaves out what has ended; if anything has, there is room for what waits for it.
func withoutEnded(answers []*Answer) []*Answer {
	var left []*Answer
	for _, answer := range answers {
		if !answer.hasEnded() {
			left = append(left, answer)
		}
	}
	if len(left) < len(answers) {
		for _, answer := range left {
			answer.parked = false
		}
	}
	return left
}

// open opens sessions for those that wait, as far as there are any.
func (q *Queue) open(answers []*Answer) {
	open := 0
	for _, answer := range answers {
		if answer.conversation != nil {
			open++
		}
	}
	for _, answer := range answers {
		if answer.conversation != nil {
			continue
		}
		if open >= q.sessions {
			return
		}
		opened, err := q.openOne(answer, open)
		switch {
		case err == nil && !opened:
			return
		case err == nil:
			open++
		case errors.Is(err, OutOfBlocks) && open > 0:
			return // sessions of the host's own take the place
		default:
			answer.end(FinishError, err)
		}
	}
}

// openOne opens a session for an answer. False if it has to wait for one of the others.
func (q *Queue) openOne(answer *Answer, others int) (bool, error) {
	request := &answer.request
	var conversation *Conversation
	err := q.resuming(func() (err error) {
		conversation, err = q.takeKept(request)
		return err
	})
	if err != nil {
		return false, err
	}
	if conversation != nil {
		var sampling Sampling
		if request.Session != nil && request.Session.Sampling != nil {
			sampling = *request.Session.Sampling
		}
		err = conversation.session.SetSampling(sampling)
	} else {
		full, failure := q.isFull()
		if failure == nil && full && others > 0 {
			return false, nil
		}
		err = q.resuming(func() (err error) {
			conversation, err = q.engine.NewConversation(request.Session)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	if err == nil {
		err = q.resuming(func() error {
			_, err := conversation.Sync(request.Messages, request.Chat)
			return err
		})
	}
	if err != nil {
		conversation.Close()
		return false, err
	}
	answer.conversation = conversation
	return true, nil
}

// takeKept returns the kept conversation that the request continues, nil if there is none. It makes room
// for a session.
func (q *Queue) takeKept(request *Request) (*Conversation, error) {
	salt := request.cacheSalt()
	if request.KeepAs != "" {
		if kept := q.kept.Take(request.KeepAs, salt); kept != nil {
			return kept, nil
		}
	}
	for {
		full, err := q.isFull()
		if err != nil {
			return nil, err
		}
		if full && q.kept.DropOldest(request.Continues) {
			continue
		}
		switch {
		case request.Continues == "":
			return nil, nil
		case full:
			return q.kept.Take(request.Continues, salt), nil
		default:
			return q.kept.Fork(request.Continues, salt)
		}
	}
}

func (q *Queue) isFull() (bool, error) {
	metrics, err := q.engine.Metrics()
	return int(metrics.Sessions) >= q.maxSessions, err
}

// resuming makes the call again where it needs the engine to be resumed.
func (q *Queue) resuming(call func() error) error {
	err := call()
	if !needsResume(err) {
		return err
	}
	if err = q.engine.Resume(q.ctx, nil); err != nil {
		return err
	}
	return call()
}

// step computes a token of each answer that has a session.
func (q *Queue) step(answers []*Answer) {
	var batch, parked []*Answer
	var conversations []*Conversation
	for _, answer := range answers {
		if answer.parked && q.kept.Len() > 0 {
			// Their part of the cache is for those that compute.
			for q.kept.DropOldest("") {
			}
			for _, other := range answers {
				other.parked = false
			}
		}
	}
	for _, answer := range answers {
		if answer.parked {
			parked = append(parked, answer)
		} else if answer.conversation != nil {
			batch = append(batch, answer)
			conversations = append(conversations, answer.conversation)
		}
	}
	if len(batch) == 0 {
		if len(parked) > 0 {
			// No room for any: the last one makes it for the others.
			parked[len(parked)-1].end(FinishError, &Error{Code: OutOfBlocks,
				Message: "the cache has no room for another token of this request"})
		}
		return
	}
	unwatch := make([]func(), len(batch))
	for i, answer := range batch {
		unwatch[i] = watch(answer.ctx, conversations[i].session)
	}
	outcomes, err := q.engine.StepConversations(q.ctx, conversations...)
	for i := range unwatch {
		unwatch[i]()
	}
	var loss error
	for i, answer := range batch {
		failure := err
		if failure == nil {
			failure = outcomes[i].Err
		}
		switch {
		case failure == nil:
			answer.deliver(outcomes[i].Step)
		case errors.Is(failure, OutOfBlocks):
			answer.parked = true
		case needsResume(failure):
			again := answer.lost
			answer.lost = errors.Is(failure, DeviceLost)
			if again && answer.lost {
				answer.end(FinishError, failure)
			}
			loss = failure
		case answer.ctx.Err() != nil || q.ctx.Err() != nil:
			// The next round ends it.
		default:
			answer.end(FinishError, failure)
		}
	}
	if loss == nil {
		return
	}
	if err := q.engine.Resume(q.ctx, nil); err != nil {
		for _, answer := range batch {
			if !answer.hasEnded() {
				answer.end(FinishError, err)
			}
		}
	}
}

func (a *Answer) deliver(step Step) {
	if step.Token < 0 {
		return
	}
	a.lost = false
	if events := a.conversation.events; len(events) > 0 {
		a.conversation.events = nil
		a.put(events)
	}
	if step.Finish != FinishNone {
		a.end(step.Finish, nil)
	}
}

// needsResume: a call that failed so can be made again when the engine has been resumed.
func needsResume(err error) bool {
	return errors.Is(err, DeviceLost) || errors.Is(err, Suspended)
}
