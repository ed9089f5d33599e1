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
	// The turn is over: nobody has asked anything.
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
