// SPDX-License-Identifier: Apache-2.0

package dsv4

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStepsSpellTheAnswer(t *testing.T) {
	engine := open(t)
	tokens := prompt(t, engine)
	session := openSession(t, engine)
	synced := must(session.Sync(tokens, nil))(t)
	expect(t, synced.PendingTokens, int64(len(tokens)))
	text, finish := "", FinishNone
	for finish == FinishNone {
		step := must(session.Step(background))(t)
		text, finish = text+step.Text, step.Finish
	}
	expect(t, text, answered)
	expect(t, finish, FinishStop)
	timeline := must(session.Tokens())(t)
	expect(t, equal(timeline[:len(tokens)], tokens), true)
	stats := must(session.Stats())(t)
	expect(t, stats.PromptTokens, int64(len(tokens)))
	expect(t, stats.UsedTokens, int64(len(timeline)))
	expect(t, stats.PrefillSeconds > 0, true)

	// The same prompt again: all tokens except the last are reused.
	synced = must(session.Sync(tokens, nil))(t)
	expect(t, synced.ReusedTokens, int64(len(tokens)-1))
	expect(t, synced.Limit, ReuseLastToken)
}

func TestRewoundAndForkedSessionsContinueAlike(t *testing.T) {
	engine := open(t)
	tokens := prompt(t, engine)
	session := openSession(t, engine)
	must(session.Sync(tokens, nil))(t)
	expected := goOn(t, session, 5)
	expect(t, must(session.Rewind(int64(len(tokens))))(t) > 0, true)
	fork := must(session.Fork())(t)
	defer fork.Close()
	expect(t, equal(goOn(t, session, 5), expected), true)
	session.Close()
	expect(t, equal(goOn(t, fork, 5), expected), true)
	_, err := fork.Rewind(-1)
	expectCode(t, err, InvalidArgument)
}

func TestAnswersMatchTheirGrammar(t *testing.T) {
	engine := open(t)
	answer := func(grammar *Grammar) string {
		sampling := Sampling{Temperature: 1.5, Seed: 1, MaxTokens: 60, Grammar: grammar}
		session := must(engine.NewSession(&SessionOptions{Sampling: &sampling}))(t)
		defer session.Close()
		must(session.Sync(prompt(t, engine), nil))(t)
		text := ""
		for {
			step := must(session.Step(background))(t)
			text += step.Text
			if step.Finish != FinishNone {
				return text
			}
		}
	}
	if text := answer(must(engine.Grammar(GrammarRegex, "[0-9]{3}"))(t)); len(text) != 3 ||
		strings.Trim(text, "0123456789") != "" {
		t.Error(text)
	}
	if text := answer(must(engine.Grammar(GrammarEBNF, `root ::= "a" "b"`))(t)); text != "ab" {
		t.Error(text)
	}
	if text := answer(must(engine.Grammar(GrammarSchema, `{"enum": [7]}`))(t)); !strings.Contains(text, "7") {
		t.Error(text)
	}
	options := ToolOptions{Choice: ToolChoiceRequired, Name: "b"}
	tools := must(engine.ToolGrammar(`[{"name": "a"}, {"name": "b"}]`, &options))(t)
	if text := answer(tools); !strings.Contains(text, `invoke name="b">`) {
		t.Error(text)
	}
	_, err := engine.Grammar(GrammarSchema, `{"maxItems": -1}`)
	if err == nil || !strings.Contains(err.Error(), "schema#/maxItems") {
		t.Error(err)
	}
}

func TestSamplingIsTakenAndTold(t *testing.T) {
	engine := open(t)
	tokens := prompt(t, engine)
	sampling := must(engine.Sampling())(t)
	sampling.Temperature, sampling.TopK, sampling.Seed, sampling.MaxTokens = 0.5, 7, 3, 3
	sampling.Bias = []TokenBias{{10, -1.5}, {11, 2}}
	sampling.BannedTokens = []int32{12}
	sampling.StopStrings = []string{"one", "two"}
	session := must(engine.NewSession(&SessionOptions{Sampling: &sampling, CacheSalt: 9}))(t)
	defer session.Close()
	expect(t, must(session.Stats())(t).Seed, 3)
	must(session.Sync(tokens, nil))(t)
	expect(t, len(goOn(t, session, 10)), 3)

	err := session.SetSampling(Sampling{TopP: 2})
	expect(t, expectCode(t, err, InvalidArgument).Argument, "sampling.top_p")

	succeed(t, session.SetSampling(Sampling{Seed: RandomSeed}))
	expect(t, must(session.Stats())(t).Seed != RandomSeed, true)
	expect(t, must(engine.Sampling())(t).Temperature, Greedy)

	// A stop string ends the text before it.
	succeed(t, session.SetSampling(Sampling{StopStrings: []string{"France"}}))
	must(session.Sync(tokens, nil))(t)
	text, finish := "", FinishNone
	for finish == FinishNone {
		step := must(session.Step(background))(t)
		text, finish = text+step.Text, step.Finish
	}
	expect(t, text, "The capital of ")
}

func TestLogProbsAreOfTheLikeliest(t *testing.T) {
	engine := open(t)
	tokens := prompt(t, engine)
	session := must(engine.NewSession(&SessionOptions{Sampling: &Sampling{LogProbs: 3}}))(t)
	defer session.Close()
	must(session.Sync(tokens, &SyncOptions{LogProbsCount: 1, LogProbsBegin: 1}))(t)
	step := must(session.Step(background))(t)
	last := must(session.LogProbs(int64(len(tokens))))(t)
	expect(t, len(last.Top), 3)
	expect(t, last.Top[0], TokenLogProb{step.Token, last.Token})
	expect(t, last.Top[0].LogProb >= last.Top[1].LogProb && last.Top[1].LogProb >= last.Top[2].LogProb, true)
	expect(t, len(must(session.LogProbs(2))(t).Top), 1)
	_, err := session.LogProbs(9999)
	expectCode(t, err, NotFound)
}

func TestSavedSessionsContinue(t *testing.T) {
	engine := open(t)
	file := filepath.Join(t.TempDir(), "saved")
	session := openSession(t, engine)
	must(session.Sync(prompt(t, engine), nil))(t)
	must(session.Step(background))(t)
	var last Progress
	succeed(t, session.Save(background, file, func(progress Progress) error {
		last = progress
		return nil
	}))
	expect(t, last, Progress{ProgressSave, last.Total, last.Total, UnitBytes})
	memory := must(session.SaveToMemory())(t)
	expect(t, bytes.Equal(memory, must(os.ReadFile(file))(t)), true)
	expected := goOn(t, session, 5)

	other := openSession(t, open(t))
	succeed(t, other.Load(background, file, nil))
	expect(t, equal(goOn(t, other, 5), expected), true)
	succeed(t, other.LoadFromMemory(memory))
	expect(t, equal(goOn(t, other, 5), expected), true)

	// Cancelled and damaged: the session stays as it was.
	before := must(other.Tokens())(t)
	reason := errors.New("enough")
	err := other.Load(background, file, func(progress Progress) error {
		last = progress
		return reason
	})
	expect(t, last.Phase, ProgressRestore)
	expectCode(t, err, Cancelled)
	expect(t, errors.Is(err, reason), true)
	memory[len(memory)/2] ^= 1
	expectCode(t, other.LoadFromMemory(memory), Corrupt)
	expectCode(t, other.Load(background, "/nowhere/at/all", nil), NotFound)
	expect(t, equal(must(other.Tokens())(t), before), true)
}

func TestAllowedTokensAreThoseOfTheNextToken(t *testing.T) {
	engine := open(t)
	session := openSession(t, engine)
	must(session.Sync(prompt(t, engine), nil))(t)
	probe := must(session.Fork())(t)
	first := must(probe.Step(background))(t).Token
	probe.Close()
	allowed := NewAllowedTokens(must(engine.Info())(t).VocabSize)
	allowed.Forbid(first)
	succeed(t, session.SetAllowed(allowed))
	fork := must(session.Fork())(t)
	defer fork.Close()
	expect(t, must(session.Step(background))(t).Token != first, true)
	expect(t, must(fork.Step(background))(t).Token != first, true)
	allowed.AllowOnly(40)
	succeed(t, session.SetAllowed(allowed))
	expect(t, must(session.Step(background))(t).Token, 40)
	succeed(t, session.SetAllowed(allowed))
	succeed(t, session.SetAllowed(nil))
	expect(t, must(session.Step(background))(t).Token != 40, true)
	expectCode(t, session.SetAllowed(NewAllowedTokens(32)), InvalidArgument)
}
