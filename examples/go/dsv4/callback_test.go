// SPDX-License-Identifier: Apache-2.0

package dsv4

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestOpeningTellsItsProgressAndCanBeCancelled(t *testing.T) {
	var last Progress
	engine := must(Open(background, model, &EngineOptions{Progress: func(progress Progress) error {
		last = progress
		return nil
	}}))(t)
	engine.Close()
	expect(t, last, Progress{ProgressLoad, last.Total, last.Total, UnitBytes})

	ctx, cancel := context.WithCancel(background)
	_, err := Open(ctx, model, &EngineOptions{Progress: func(Progress) error {
		cancel()
		return nil
	}})
	// At once, or at the next report: a small model may have no other.
	if err != nil {
		expectCode(t, err, Cancelled)
	}
	_, err = Open(ctx, model, nil)
	expectCode(t, err, Cancelled)
	expect(t, errors.Is(err, context.Canceled), true)
}

func TestPanicsGoAroundC(t *testing.T) {
	panics := func(Progress) error { panic("by progress") }
	expect(t, panicOf(t, func() {
		Open(background, model, &EngineOptions{Progress: panics})
	}), "by progress")
	engine := open(t)
	session := openSession(t, engine)
	must(session.Sync(longPrompt(), nil))(t)
	expect(t, panicOf(t, func() { session.Prefill(background, 0, panics) }), "by progress")

	tokens := prompt(t, engine)
	must(session.Sync(tokens, nil))(t)
	expected := goOn(t, session, 4)
	must(session.Rewind(int64(len(tokens))))(t)
	file := filepath.Join(t.TempDir(), "saved")
	expect(t, panicOf(t, func() { session.Save(background, file, panics) }), "by progress")
	_, err := os.Stat(file)
	expect(t, os.IsNotExist(err), true)

	// The session is none the worse for it.
	expect(t, equal(goOn(t, session, 4), expected), true)
}

func TestLogIsHeardUntilItIsCleared(t *testing.T) {
	var mutex sync.Mutex
	var lines []string
	SetLog(LogInfo, func(level LogLevel, message string) {
		mutex.Lock()
		defer mutex.Unlock()
		lines = append(lines, message)
		panic("dropped")
	})
	open(t)
	SetLog(LogError, nil)
	count := len(lines)
	expect(t, strings.Contains(strings.Join(lines, "\n"), "backend cpu"), true)
	open(t)
	expect(t, len(lines), count)
}

func TestCancelledContextsStopAPrefill(t *testing.T) {
	engine := open(t)
	tokens := longPrompt()
	straight := openSession(t, engine)
	must(straight.Sync(tokens, nil))(t)
	expected := goOn(t, straight, 4)
	session := must(engine.NewSession(&SessionOptions{CacheSalt: 1}))(t)
	defer session.Close()
	must(session.Sync(tokens, nil))(t)

	// Before the call, from within it, and by a deadline.
	ended, cancel := context.WithCancel(background)
	cancel()
	_, err := session.Prefill(ended, 0, nil)
	expectCode(t, err, Cancelled)
	expect(t, errors.Is(err, context.Canceled), true)
	_, err = session.Step(ended)
	expect(t, errors.Is(err, context.Canceled), true)
	_, err = engine.Step(ended, session)
	expect(t, errors.Is(err, context.Canceled), true)
	expect(t, must(session.Stats())(t).PrefilledTokens, 0)

	within, cancel := context.WithCancel(background)
	_, err = session.Prefill(within, 0, func(Progress) error {
		cancel()
		return nil
	})
	expectCode(t, err, Cancelled)
	expect(t, errors.Is(err, context.Canceled), true)

	// One that a pass misses comes again.
	for {
		soon, cancel := context.WithTimeout(background, 2*time.Millisecond)
		_, err = session.Prefill(soon, 0, nil)
		cancel()
		if err != nil {
			break
		}
		must(session.Rewind(1))(t)
	}
	expectCode(t, err, Cancelled)
	expect(t, errors.Is(err, context.DeadlineExceeded), true)

	// A context that ends after the call changes nothing.
	after, cancel := context.WithCancel(background)
	must(session.Sync(tokens, nil))(t)
	must(session.Prefill(after, 0, nil))(t)
	cancel()
	expect(t, equal(goOn(t, session, 4), expected), true)
}

func TestCloseEndsWhatRuns(t *testing.T) {
	engine := open(t)
	session := openSession(t, engine)
	must(session.Sync(longPrompt(), nil))(t)
	_, err := session.Prefill(background, 0, func(progress Progress) error {
		// As another goroutine would.
		session.Close()
		engine.Close()
		return nil
	})
	if err != nil {
		expectCode(t, err, Cancelled)
	}
	_, err = session.Step(background)
	expectCode(t, err, InvalidArgument)
}

func TestManyGoroutinesShareAnEngine(t *testing.T) {
	engine := open(t)
	tokens := prompt(t, engine)
	alone := openSession(t, engine)
	must(alone.Sync(tokens, nil))(t)
	expected := goOn(t, alone, 8)
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for i := 0; i < 3; i++ {
		session := openSession(t, engine)
		all.Add(1)
		go func() {
			defer all.Done()
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			if _, err := session.Sync(tokens, nil); err != nil {
				t.Error(err)
			}
			for _, token := range expected {
				// Wherever the scheduler puts it.
				runtime.Gosched()
				step, err := session.Step(ctx)
				if err != nil || step.Token != token {
					t.Error(step, err)
				}
				if _, err := engine.Info(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	// The last ones may still be on their way out.
	for wait := 0; runtime.NumGoroutine() > before && wait < 1000; wait++ {
		time.Sleep(time.Millisecond)
	}
	expect(t, runtime.NumGoroutine() <= before, true)
}

func TestSharedSessionsAreBusy(t *testing.T) {
	engine := open(t)
	session := openSession(t, engine)
	must(session.Sync(longPrompt(), nil))(t)
	_, err := session.Prefill(background, 0, func(Progress) error {
		_, err := session.Stats()
		return err
	})
	expect(t, errors.Is(err, Busy), true)
}
