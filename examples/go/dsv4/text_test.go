// SPDX-License-Identifier: Apache-2.0

package dsv4

import (
	"strings"
	"testing"
)

const endMarker = "<｜end▁of▁sentence｜>"

func openTokenizer(t *testing.T) *Tokenizer {
	t.Helper()
	tokenizer := must(OpenTokenizer(model))(t)
	t.Cleanup(tokenizer.Close)
	return tokenizer
}

func TestTextSurvivesTheTokenizer(t *testing.T) {
	tokenizer := openTokenizer(t)
	for _, text := range []string{"", "Hello, world!", "Émile zählt 1234567 — 数字 🙂\n\t  x"} {
		tokens := must(tokenizer.Encode(text))(t)
		expect(t, must(tokenizer.Decode(tokens))(t), text)
		var bytes []byte
		for _, token := range tokens {
			bytes = append(bytes, must(tokenizer.TokenBytes(token))(t)...)
		}
		expect(t, string(bytes), text)
	}
	_, err := tokenizer.Decode([]int32{tokenizer.VocabSize()})
	expect(t, strings.HasPrefix(expectCode(t, err, InvalidArgument).Argument, "ids"), true)
	_, err = tokenizer.TokenBytes(-1)
	expect(t, expectCode(t, err, InvalidArgument).Argument, "id")
}

func TestUsersForgeNoControlToken(t *testing.T) {
	tokenizer := openTokenizer(t)
	id, ok := tokenizer.AddedToken(endMarker)
	expect(t, ok, true)
	expect(t, equal(must(tokenizer.EncodeWithAddedTokens(endMarker))(t), []int32{id}), true)
	for _, tokens := range [][]int32{
		must(tokenizer.Encode(endMarker))(t),
		must(tokenizer.Render(userJSON(endMarker), nil))(t),
	} {
		for _, token := range tokens {
			expect(t, token != id, true)
		}
	}
	_, ok = tokenizer.AddedToken("no such token")
	expect(t, ok, false)
}

func TestStructsAndJSONGiveTheSamePrompt(t *testing.T) {
	tokenizer := openTokenizer(t)
	conversation := must(open(t).NewConversation(nil))(t)
	defer conversation.Close()
	tools := `[{"type": "function", "function": {"name": "weather", "description": "d",
		"parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]`
	messages := []Message{
		{Role: RoleSystem, Content: "Be brief.", Tools: tools},
		{Role: RoleUser, Content: question},
		{Role: RoleAssistant, Content: "Let me see.", Reasoning: "Easy.", ToolCalls: []ToolCall{
			{ID: "call_1", Name: "weather", Arguments: `{"city": "Paris"}`},
		}},
		{Role: RoleTool, ToolCallID: "call_1", Content: "sunny"},
	}
	json := `[{"role": "system", "content": "Be brief.", "tools": ` + tools + `},
		{"role": "user", "content": "` + question + `"},
		{"role": "assistant", "content": "Let me see.", "reasoning_content": "Easy.",
		 "tool_calls": [{"id": "call_1", "type": "function", "function":
			{"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]},
		{"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]`
	for _, thinking := range []ThinkingMode{ThinkingOff, ThinkingHigh, ThinkingMax, ThinkingLow} {
		options := &ChatOptions{Thinking: thinking, KeepReasoning: true}
		text := must(RenderText(json, options))(t)
		expect(t, strings.Contains(text, "sunny") && strings.Contains(text, question), true)
		ids := must(tokenizer.Render(json, options))(t)
		expect(t, must(tokenizer.Decode(ids))(t), text)
		must(conversation.Sync(messages, options))(t)
		expect(t, equal(must(conversation.Session().Tokens())(t), ids), true)
	}

	// What one encoder writes for high, the other writes for max.
	high := &ChatOptions{Thinking: ThinkingHigh, Encoder: ChatEncoder0731}
	max := &ChatOptions{Thinking: ThinkingMax, Encoder: ChatEncoderPreview}
	expect(t, must(RenderText(json, high))(t), must(RenderText(json, max))(t))
	max.Encoder = ChatEncoder0731
	expect(t, strings.Contains(must(RenderText(json, max))(t), "Beyond maximum"), true)

	// The prompt of a context and what follows it is that of all.
	first := `[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]`
	second := userJSON("Bye")
	head := must(tokenizer.Render(first, nil))(t)
	tail := must(tokenizer.Render(second, &ChatOptions{Context: first}))(t)
	whole := must(tokenizer.Render(first[:len(first)-1]+","+second[1:], nil))(t)
	expect(t, equal(append(head, tail...), whole), true)

	_, err := conversation.Sync([]Message{{Role: 99}}, nil)
	expect(t, expectCode(t, err, InvalidArgument).Argument, "messages[0].role")
	_, err = RenderText("[", nil)
	expectCode(t, err, Corrupt)
}

const completion = "Hm.</think>Hi\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n" +
	"<｜DSML｜parameter name=\"a\" string=\"true\">é</｜DSML｜parameter>\n" +
	"</｜DSML｜invoke>\n</｜DSML｜tool_calls>" + endMarker

// joined makes one of pieces of one kind, as cuts decide how many there are.
func joined(events []Event) (all []Event) {
	for _, event := range events {
		if last := len(all) - 1; last >= 0 && all[last].Type == event.Type &&
			event.Type != EventToolCallStart {
			all[last].Text += event.Text
		} else {
			all = append(all, event)
		}
	}
	return all
}

func expectEvents(t *testing.T, events []Event) {
	t.Helper()
	expected := []Event{
		{Type: EventReasoning, Call: -1, Text: "Hm."},
		{Type: EventText, Call: -1, Text: "Hi"},
		{Type: EventToolCallStart, Call: 0, Text: "f", ID: "id0"},
		{Type: EventToolCallArguments, Call: 0, Text: `{"a": "é"}`},
		{Type: EventToolCallEnd, Call: 0},
		{Type: EventEnd, Call: -1, Stopped: true},
	}
	events = joined(events)
	expect(t, len(events), len(expected))
	for i := range events {
		expect(t, events[i], expected[i])
	}
}

func TestCompletionsAreParsedHoweverTheyAreCut(t *testing.T) {
	parser := must(NewParser(&ParserOptions{Thinking: ThinkingHigh, IDPrefix: "id"}))(t)
	defer parser.Close()
	for cut := 0; cut <= len(completion); cut++ {
		events := must(parser.Feed([]byte(completion[:cut])))(t)
		events = append(events, must(parser.Feed([]byte(completion[cut:])))(t)...)
		expectEvents(t, append(events, must(parser.End())(t)...))
	}
	_, err := NewParser(&ParserOptions{IDPrefix: "\x00"})
	expect(t, expectCode(t, err, InvalidArgument).Argument, "id_prefix")
}
