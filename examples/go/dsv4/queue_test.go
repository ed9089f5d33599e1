// SPDX-License-Identifier: Apache-2.0

package dsv4

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// story returns a request with another answer for each seed, of up to 40 tokens.
func story(seed uint64) Request {
	return Request{Messages: user("Write a short story about Ralf and a ring."),
		Session: &SessionOptions{Sampling: &Sampling{Temperature: 8, TopP: 1, MinP: -1, Seed: seed,
			MaxTokens: 40}}}
}

func openWith(t *testing.T, options *EngineOptions) *Engine {
	t.Helper()
	engine := must(Open(background, model, options))(t)
	t.Cleanup(engine.Close)
	return engine
}

func newQueue(t *testing.T, engine *Engine) *Queue {
	t.Helper()
	queue := must(engine.NewQueue(nil))(t)
	t.Cleanup(queue.Close)
	return queue
}

// received returns the text that comes through the channel.
func received(answer *Answer) (text string) {
	for event := range answer.Events() {
		if event.Type == EventText {
			text += event.Text
		}
	}
	return text
}

// alone returns the text of the answer without a queue.
func alone(t *testing.T, engine *Engine, request Request) (text string) {
	t.Helper()
	conversation := must(engine.NewConversation(request.Session))(t)
	defer conversation.Close()
	must(conversation.Sync(request.Messages, request.Chat))(t)
	events := conversation.Events(background)
	for events.Next() {
		if events.Event().Type == EventText {
			text += events.Event().Text
		}
	}
	succeed(t, events.Err())
	return text
}

func TestQueueAnswersEachAsAlone(t *testing.T) {
	engine := openWith(t, &EngineOptions{MaxSessions: 2})
	var expected []string
	for seed := uint64(1); seed <= 5; seed++ {
		expected = append(expected, alone(t, engine, story(seed)))
	}
	expect(t, expected[0] == expected[1], false)
	queue := newQueue(t, engine)
	var answers []*Answer
	for seed := uint64(1); seed <= 5; seed++ {
		answers = append(answers, queue.Submit(background, story(seed)))
	}
	last := queue.Submit(background, Request{Messages: user(question)})
	for i, answer := range answers {
		expect(t, received(answer), expected[i])
		reply, _, err := answer.Wait()
		succeed(t, err)
		expect(t, reply.Content, expected[i])
		expect(t, answer.Stats().GeneratedTokens > 0, true)
	}
	// The end can be awaited alone.
	reply, finish, err := last.Wait()
	succeed(t, err)
	expect(t, reply.Content, answered)
	expect(t, finish, FinishStop)
	expect(t, received(last), answered)
}

func TestQueueRequestsFailAndEndAlone(t *testing.T) {
	engine := open(t)
	queue := newQueue(t, engine)
	long := story(3)
	long.Session.Sampling.MaxTokens = 3000
	long.Session.Sampling.BannedTokens = []int32{must(engine.Info())(t).EOSToken}
	long.Session.Sampling.ForcedTokens = []int32{261, 1481, 261, 1481, 261, 1481}
	for i := 0; i < 8; i++ {
		forced := &long.Session.Sampling.ForcedTokens
		*forced = append(*forced, *forced...)
	}
	ctx, cancel := context.WithCancel(background)
	good := queue.Submit(background, Request{Messages: user(question)})
	bad := queue.Submit(background, Request{})
	ended := queue.Submit(ctx, long)
	_, finish, err := bad.Wait()
	expectCode(t, err, InvalidArgument)
	expect(t, finish, FinishError)
	expect(t, received(bad), "")
	first := <-ended.Events()
	cancel()
	reply, finish, err := ended.Wait()
	expectCode(t, err, Cancelled)
	expect(t, errors.Is(err, context.Canceled), true)
	expect(t, finish, FinishCancelled)
	expect(t, strings.HasPrefix(reply.Content, first.Text), true)
	expect(t, ended.Stats().GeneratedTokens < 1000, true)
	expect(t, received(good), answered)
	// Nobody receives the events of the one, or ever will; the context of the other has ended.
	queue.Submit(background, Request{Messages: user(question)})
	_, _, err = queue.Submit(ctx, long).Wait()
	expectCode(t, err, Cancelled)
	expect(t, received(queue.Submit(background, Request{Messages: user(question)})), answered)
}

func TestQueueResumesAndCloses(t *testing.T) {
	engine := open(t)
	queue := newQueue(t, engine)
	succeed(t, engine.Suspend(""))
	expect(t, received(queue.Submit(background, Request{Messages: user(question)})), answered)
	var answers []*Answer
	for seed := uint64(0); seed < 40; seed++ {
		answers = append(answers, queue.Submit(background, story(seed)))
	}
	<-answers[0].Events()
	queue.Close()
	_, _, err := answers[39].Wait()
	expectCode(t, err, Cancelled)
	for _, answer := range answers {
		received(answer)
		answer.Wait()
	}
	_, _, err = queue.Submit(background, story(1)).Wait()
	expectCode(t, err, Cancelled)
	expect(t, must(engine.Metrics())(t).Sessions, 0)
}

func TestQueueWithAFullCacheEndsTheLastIfNoneCanGoOn(t *testing.T) {
	// 4 blocks of 256; each request comes to need 3.
	engine := openWith(t, &EngineOptions{MaxSessions: 4, ContextTokens: 640, CacheTokens: 1024})
	queue := newQueue(t, engine)
	request := func(seed uint64) Request {
		request := story(seed)
		sampling := request.Session.Sampling
		sampling.MaxTokens = 400
		for i := 0; i < 200; i++ {
			sampling.ForcedTokens = append(sampling.ForcedTokens, 261, 1481)
		}
		request.Messages = user(fmt.Sprint(seed, strings.Repeat(" The ring lay at the door.", 22)))
		return request
	}
	expected := alone(t, engine, request(1))
	var answers []*Answer
	for seed := uint64(1); seed <= 4; seed++ {
		answers = append(answers, queue.Submit(background, request(seed)))
	}
	expect(t, received(answers[0]), expected)
	_, _, err := answers[3].Wait()
	expectCode(t, err, OutOfBlocks)
	// There is room again.
	kept := request(2)
	kept.KeepAs = "kept"
	_, _, err = queue.Submit(background, kept).Wait()
	succeed(t, err)
	expect(t, queue.Kept().Len(), 1)
	// Kept conversations give theirs up.
	expected = alone(t, engine, request(3))
	expect(t, received(queue.Submit(background, request(3))), expected)
	expect(t, queue.Kept().Len(), 1)
	answers = []*Answer{queue.Submit(background, request(4)), queue.Submit(background, request(5))}
	_, _, err = answers[0].Wait()
	succeed(t, err)
	expect(t, queue.Kept().Len(), 0)
}

func TestQueueKeepsContinuesAndBranchesFromConversations(t *testing.T) {
	engine := openWith(t, &EngineOptions{MaxSessions: 2})
	queue := newQueue(t, engine)
	answer := func(request Request) (Message, Stats) {
		t.Helper()
		answer := queue.Submit(background, request)
		reply, _, err := answer.Wait()
		succeed(t, err)
		return reply, answer.Stats()
	}
	first, one := answer(Request{Messages: user(question), KeepAs: "1"})
	expect(t, queue.Kept().Len(), 1)
	messages := append(user(question), first, user("What is the capital of Italy?")[0])
	second, two := answer(Request{Messages: messages, KeepAs: "2", Continues: "1"})
	expect(t, second.Content, "The capital of Italy is Rome.")
	expect(t, two.CachedTokens, one.UsedTokens-1) // the last token was never computed
	expect(t, queue.Kept().Len(), 2)
	// Shares nothing.
	_, other := answer(Request{Messages: user(question), KeepAs: "1",
		Session: &SessionOptions{CacheSalt: 7}})
	expect(t, other.CachedTokens, 0)
	messages = append(messages, second, user(question)[0])
	third, three := answer(Request{Messages: messages, KeepAs: "2"})
	expect(t, third.Content, answered)
	expect(t, three.CachedTokens, two.UsedTokens-1)
	// All sessions are kept: a request takes the place of one, the oldest.
	expect(t, queue.Kept().Len(), 2)
	reply, _ := answer(Request{Messages: user(question)})
	expect(t, reply.Content, answered)
	expect(t, queue.Kept().Len(), 1)
	expect(t, queue.Kept().Take("1", 7) == nil, true)
	kept := queue.Kept().Take("2", 0)
	expect(t, must(kept.Session().Stats())(t).UsedTokens, three.UsedTokens)
	// One that the host adds is continued as well, and closed with the queue.
	queue.Kept().Put("host", kept, 0)
	reply, stats := answer(Request{Messages: user(question), KeepAs: "host"})
	expect(t, reply.Content, answered)
	expect(t, stats.CachedTokens > 0, true)
	queue.Close()
	expect(t, must(engine.Metrics())(t).Sessions, 0)
}

func TestQueueKeepsACancelledConversationAndNoneThatFailed(t *testing.T) {
	engine := open(t)
	queue := must(engine.NewQueue(&QueueOptions{Kept: 1}))(t)
	t.Cleanup(queue.Close)
	_, _, err := queue.Submit(background, Request{KeepAs: "failed"}).Wait()
	expectCode(t, err, InvalidArgument)
	expect(t, queue.Kept().Len(), 0)
	long := story(3)
	long.Session.Sampling.MaxTokens = 3000
	long.Session.Sampling.BannedTokens = []int32{must(engine.Info())(t).EOSToken}
	long.KeepAs = "story"
	ctx, cancel := context.WithCancel(background)
	ended := queue.Submit(ctx, long)
	<-ended.Events()
	cancel()
	reply, _, err := ended.Wait()
	expectCode(t, err, Cancelled)
	expect(t, queue.Kept().Len(), 1)
	messages := append(long.Messages, reply, user(question)[0])
	next := queue.Submit(background, Request{Messages: messages, KeepAs: "story"})
	reply, _, err = next.Wait()
	succeed(t, err)
	expect(t, strings.Contains(reply.Content, "Paris"), true)
	expect(t, next.Stats().CachedTokens > 0, true)
	// No more than Kept are kept.
	received(queue.Submit(background, Request{Messages: user(question), KeepAs: "other"}))
	expect(t, queue.Kept().Len(), 1)
	expect(t, queue.Kept().Take("story", 0) == nil, true)
	none := must(engine.NewQueue(&QueueOptions{Kept: -1}))(t)
	received(none.Submit(background, Request{Messages: user(question), KeepAs: "none"}))
	expect(t, none.Kept().Len(), 0)
	none.Close()
}
