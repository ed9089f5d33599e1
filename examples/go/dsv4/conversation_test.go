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

func TestTurnsFollowEachOther(t *testing.T) {
	conversation := must(open(t).NewConversation(user(question), nil, nil))(t)
	defer conversation.Close()
	expect(t, answer(t, conversation), answered)
	expect(t, conversation.Finish(), FinishStop)
	expect(t, must(conversation.MessageCount())(t), 2)
	expect(t, strings.Contains(must(conversation.ReplyJSON())(t), answered), true)
	// The turn is over: there is no new question.
	events := conversation.Events(background)
	expect(t, events.Next(), false)
	expectCode(t, events.Err(), InvalidArgument)

	succeed(t, conversation.AppendJSON(`[{"role": "user", "content": "And of Italy?"}]`))
	answer(t, conversation)
	expect(t, must(conversation.MessageCount())(t), 4)
	expect(t, must(conversation.Session().Stats())(t).CachedTokens > 0, true)

	succeed(t, conversation.Truncate(1))
	expect(t, answer(t, conversation), answered)
	expectCode(t, conversation.Truncate(9), InvalidArgument)
	expectCode(t, conversation.Append(), InvalidArgument)
}

func TestTurnMayBeLeftAndTakenUpAgain(t *testing.T) {
	messages := `[{"role": "user", "content": "` + question + `"}]`
	conversation := must(open(t).NewConversationJSON(messages, nil, nil))(t)
	defer conversation.Close()
	events := conversation.Events(background)
	expect(t, events.Next(), true)
	first := events.Event().Text
	fork := must(conversation.Fork())(t)
	defer fork.Close()
	expect(t, first+answer(t, conversation), answered)
	expect(t, first+answer(t, fork), answered)

	// Or ended where it is.
	succeed(t, conversation.Truncate(1))
	must(conversation.Step(background))(t)
	rest := must(conversation.EndTurn())(t)
	expect(t, rest[len(rest)-1].Type, EventEnd)
	expect(t, rest[len(rest)-1].Stopped, false)
	expect(t, strings.Contains(must(conversation.ReplyJSON())(t), "Paris"), false)
}

func TestWhatPullsTheTimelineAwayIsTold(t *testing.T) {
	conversation := must(open(t).NewConversation(user(question), nil, nil))(t)
	defer conversation.Close()
	must(conversation.Session().Sync([]int32{1, 2, 3}, nil))(t)
	events := conversation.Events(background)
	expect(t, events.Next(), false)
	expectCode(t, events.Err(), InvalidArgument)
	succeed(t, conversation.SetChatOptions(nil))
	expect(t, answer(t, conversation), answered)
}

func TestConversationsStepInOnePassAndAreEdited(t *testing.T) {
	engine := open(t)
	first := must(engine.NewConversation(user(question), nil, nil))(t)
	defer first.Close()
	second := must(engine.NewConversation(user("Hello"), nil, nil))(t)
	defer second.Close()
	succeed(t, second.ReplaceJSON(0, 1, `[{"role": "user", "content": "nothing"}]`))
	succeed(t, second.Replace(0, 1, user(question)...))
	expect(t, must(second.MessagesJSON(0, 9))(t), must(first.MessagesJSON(0, 9))(t))
	for first.Finish() == FinishNone {
		for _, step := range must(engine.StepConversations(background, first, second))(t) {
			succeed(t, step.Err)
		}
	}
	for _, conversation := range []*Conversation{first, second} {
		text := ""
		for _, event := range conversation.events {
			text += event.Text
		}
		expect(t, text, answered)
	}
	expectCode(t, must(engine.StepConversations(background, first))(t)[0].Err, InvalidArgument)

	succeed(t, first.Append(user(question)...))
	first.Session().Stop()
	_, err := first.Step(background)
	expectCode(t, err, Cancelled)
	first.Session().Resume()
	_, err = first.Step(background)
	succeed(t, err)
}
