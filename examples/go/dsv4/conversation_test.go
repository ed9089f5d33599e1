// SPDX-License-Identifier: Apache-2.0

package dsv4

import (
	"strings"
	"testing"
)

// answer returns the text of the turn, which must end.
func answer(t *testing.T, conversation *Conversation) (text string) {
	t.Helper()
	ended := false
	events := conversation.Events(background)
	for events.Next() {
		expect(t, ended, false)
		switch event := events.Event(); event.Type {
		case EventText:
			text += event.Text
		case EventEnd:
			ended = event.Stopped
		default:
			t.Fatalf("%+v", event)
		}
	}
	succeed(t, events.Err())
	expect(t, ended, true)
	expect(t, events.Next(), false)
	return text
}

// ask returns a conversation that was synced to the question.
func ask(t *testing.T, engine *Engine) *Conversation {
	t.Helper()
	conversation := must(engine.NewConversation(nil))(t)
	t.Cleanup(conversation.Close)
	must(conversation.Sync(user(question), nil))(t)
	return conversation
}

func TestTurnsFollowEachOther(t *testing.T) {
	conversation := ask(t, open(t))
	expect(t, answer(t, conversation), answered)
	expect(t, conversation.Finish(), FinishStop)
	expect(t, conversation.Reply().Content, answered)
	expect(t, conversation.Reply().Role, RoleAssistant)
	expect(t, strings.Contains(must(conversation.ReplyJSON())(t), answered), true)
	// The turn is over: there is no new question.
	events := conversation.Events(background)
	expect(t, events.Next(), false)
	expectCode(t, events.Err(), InvalidArgument)

	used := must(conversation.Session().Stats())(t).UsedTokens
	messages := append(user(question), conversation.Reply())
	messages = append(messages, user("And of Italy?")...)
	// All but the token that ended the turn, which was never computed.
	expect(t, must(conversation.Sync(messages, nil))(t).ReusedTokens, used-1)
	answer(t, conversation)

	must(conversation.Sync(messages[:1], nil))(t)
	expect(t, answer(t, conversation), answered)
	_, err := conversation.SyncJSON("{}", nil)
	expectCode(t, err, InvalidArgument)
}

func TestTurnMayBeLeftAndTakenUpAgain(t *testing.T) {
	conversation := must(open(t).NewConversation(nil))(t)
	defer conversation.Close()
	must(conversation.SyncJSON(userJSON(question), nil))(t)
	events := conversation.Events(background)
	expect(t, events.Next(), true)
	first := events.Event().Text
	fork := must(conversation.Fork())(t)
	defer fork.Close()
	expect(t, first+answer(t, conversation), answered)
	expect(t, first+answer(t, fork), answered)
	expect(t, fork.Reply().Content, answered)

	// Or ended where it is.
	must(conversation.Sync(user(question), nil))(t)
	must(conversation.Step(background))(t)
	rest := must(conversation.EndTurn())(t)
	expect(t, rest[len(rest)-1].Type, EventEnd)
	expect(t, rest[len(rest)-1].Stopped, false)
	expect(t, strings.Contains(must(conversation.ReplyJSON())(t), "Paris"), false)
}

func TestWhatPullsTheTimelineAwayIsTold(t *testing.T) {
	conversation := ask(t, open(t))
	must(conversation.Session().Sync([]int32{1, 2, 3}, nil))(t)
	events := conversation.Events(background)
	expect(t, events.Next(), false)
	expectCode(t, events.Err(), InvalidArgument)
	must(conversation.Sync(user(question), nil))(t)
	expect(t, answer(t, conversation), answered)
}

func TestConversationsStepInOnePass(t *testing.T) {
	engine := open(t)
	first, second := ask(t, engine), ask(t, engine)
	for first.Finish() == FinishNone {
		for _, step := range must(engine.StepConversations(background, first, second))(t) {
			succeed(t, step.Err)
		}
	}
	for _, conversation := range []*Conversation{first, second} {
		expect(t, conversation.Reply().Content, answered)
		expect(t, answer(t, conversation), answered)
	}
	expectCode(t, must(engine.StepConversations(background, first))(t)[0].Err, InvalidArgument)

	must(first.Sync(user(question), nil))(t)
	first.Session().Stop()
	_, err := first.Step(background)
	expectCode(t, err, Cancelled)
	first.Session().Resume()
	_, err = first.Step(background)
	succeed(t, err)
}
