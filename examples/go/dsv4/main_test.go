// SPDX-License-Identifier: Apache-2.0

package dsv4

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The bundled model; what it says is recorded in its gates.json.
const (
	model    = "../../../models/dsv4-tiny"
	question = "What is the capital of France?"
	answered = "The capital of France is Paris."
)

var background = context.Background()

func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must is for calls that have to succeed.
func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		succeed(t, err)
		return value
	}
}

func expectCode(t *testing.T, err error, code Code) *Error {
	t.Helper()
	var failure *Error
	if !errors.Is(err, code) || !errors.As(err, &failure) {
		t.Fatalf("%v, not %v", err, code)
	}
	return failure
}

func expect[T comparable](t *testing.T, value, expected T) {
	t.Helper()
	if value != expected {
		t.Fatalf("%v, not %v", value, expected)
	}
}

func equal(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func open(t *testing.T) *Engine {
	t.Helper()
	engine := must(Open(background, model, nil))(t)
	t.Cleanup(engine.Close)
	return engine
}

func openSession(t *testing.T, engine *Engine) *Session {
	t.Helper()
	session := must(engine.NewSession(nil))(t)
	t.Cleanup(session.Close)
	return session
}

func user(text string) []Message { return []Message{{Role: RoleUser, Content: text}} }

// userJSON needs a text without escapes.
func userJSON(text string) string { return `[{"role": "user", "content": "` + text + `"}]` }

func prompt(t *testing.T, engine *Engine) []int32 {
	t.Helper()
	tokenizer := must(engine.Tokenizer())(t)
	return must(tokenizer.Render(userJSON(question), nil))(t)
}

// longPrompt is of tokens without meaning that fill several chunks.
func longPrompt() []int32 {
	tokens := make([]int32, 1500)
	for i := range tokens {
		tokens[i] = int32(3 + (i*37+i/11)%2000)
	}
	return tokens
}

// goOn returns up to count tokens with which the session continues.
func goOn(t *testing.T, session *Session, count int) (tokens []int32) {
	t.Helper()
	for len(tokens) < count {
		step := must(session.Step(background))(t)
		tokens = append(tokens, step.Token)
		if step.Finish != FinishNone {
			break
		}
	}
	return tokens
}

// panicOf returns what run panics with.
func panicOf(t *testing.T, run func()) (text string) {
	t.Helper()
	defer func() {
		value := recover()
		if value == nil {
			t.Fatal("no panic")
		}
		text = fmt.Sprint(value)
	}()
	run()
	return ""
}

func TestMissingFolderIsNamed(t *testing.T) {
	_, err := Open(background, "/nowhere/at/all", nil)
	failure := expectCode(t, err, NotFound)
	if !strings.Contains(failure.Message, "/nowhere/at/all") {
		t.Fatal(failure.Message)
	}
	if !strings.HasPrefix(err.Error(), "NOT_FOUND: ") {
		t.Fatal(err)
	}
	if errors.Is(err, IO) {
		t.Fatal("another code")
	}
}

func TestRefusedOptionIsNamed(t *testing.T) {
	_, err := Open(background, model, &EngineOptions{Threads: -1})
	expect(t, expectCode(t, err, InvalidArgument).Argument, "options.threads")
	_, planned := Plan(model, &EngineOptions{Threads: -1})
	expect(t, planned.Error(), err.Error())
	_, err = Open(background, model, &EngineOptions{Backend: BackendCPU, Settings: []string{"tuning_dir=tables"}})
	expect(t, expectCode(t, err, Unsupported).Argument, "options.tuning_dir")
	_, err = Plan(model, &EngineOptions{DeviceWeightBytes: -1})
	expect(t, expectCode(t, err, InvalidArgument).Argument, "options.device_weight_bytes")
	_, err = Plan(model, &EngineOptions{HostWeightBytes: -1})
	expect(t, expectCode(t, err, InvalidArgument).Argument, "options.host_weight_bytes")
	_, err = Open(background, model, &EngineOptions{Settings: []string{"ta\x00bles"}})
	expect(t, expectCode(t, err, InvalidArgument).Argument, "settings")
	_, err = Open(background, model, &EngineOptions{Settings: []string{"tuning=tables"}})
	expect(t, expectCode(t, err, InvalidArgument).Argument, "options.settings[0]")
	_, err = Open(background, "models\x00tiny", nil)
	expect(t, expectCode(t, err, InvalidArgument).Argument, "path")
}

func TestPlanIsWhatIsOpened(t *testing.T) {
	options := &EngineOptions{
		Backend: BackendCPU, Settings: []string{"cache_format=bf16"}, ContextTokens: 1024, MaxSessions: 2, Threads: 1,
		MaxDraftTokens: 2, Drafter: DrafterNgram,
	}
	planned := must(Plan(model, options))(t)
	engine := must(Open(background, model, options))(t)
	defer engine.Close()
	info := must(engine.Info())(t)
	// A plan computes nothing.
	expect(t, info.Canary, CanaryPassed)
	info.Canary = CanaryNone
	// An engine's predictions come of rates that were measured when it was opened.
	expect(t, strings.Contains(info.BackendReason, "measured"), true)
	info.BackendReason = planned.BackendReason
	info.PredictedDecodeTokensPerSecond = planned.PredictedDecodeTokensPerSecond
	info.PredictedPrefillTokensPerSecond = planned.PredictedPrefillTokensPerSecond
	expect(t, info, planned)
	devices := must(PlanDevices(model, options))(t)
	expect(t, len(devices), 1)
	expect(t, devices[0].WeightBytes, info.WeightBytes)
	expect(t, info.ContextTokens, 1024)
	expect(t, info.MaxSessions, 2)
	expect(t, info.CacheFormat, "bf16")
	expect(t, info.CheckpointDrafter, DrafterMTP)
	expect(t, info.Drafter, DrafterNgram)
	expect(t, info.HasTokenizer && info.WeightBytes > 0, true)
}

func TestDevicesAreListedTheCPULast(t *testing.T) {
	devices := must(ListDevices())(t)
	cpu := devices[len(devices)-1]
	expect(t, cpu.Backend, BackendCPU)
	expect(t, cpu.Usable && cpu.Reason == "", true)
	expect(t, cpu.Name != "" && cpu.TotalBytes >= cpu.FreeBytes && cpu.FreeBytes > 0, true)
	expect(t, devices[0].Backend, BackendCUDA)
	expect(t, devices[0].Usable, devices[0].Reason == "")
}

func TestGroupsAreRefusedOnTheCPU(t *testing.T) {
	options := &EngineOptions{Backend: BackendCPU, Group: GroupOptions{Size: 2, Rank: 1}}
	err := ServeGroup(background, model, options)
	expect(t, strings.Contains(err.Error(), "group_size = 2 on backend cpu"), true)
	options.Group.ID = "id"
	err = ServeGroup(background, model, options)
	expect(t, strings.Contains(err.Error(), "\"id\" is not a group id"), true)
	_, err = CreateGroupID(&EngineOptions{})
	expect(t, strings.Contains(err.Error(), "group_size = 0"), true)
}

func TestEngineCounts(t *testing.T) {
	engine := open(t)
	metrics := must(engine.Metrics())(t)
	expect(t, metrics.CompressedKvBlocks > 0 && !metrics.DeviceLost, true)
	expect(t, metrics.GeneratedTokens, 0)
}

func TestEngineTellsWhatItIs(t *testing.T) {
	identity := must(open(t).Identity())(t)
	expect(t, len(identity.Fingerprint), 32)
	json := must(Inspect(model))(t)
	expect(t, strings.HasPrefix(json, "{") && strings.Contains(json, identity.Fingerprint), true)
	expect(t, strings.Contains(BuildInfo(), Version()), true)
}

func TestHandlesCloseInAnyOrder(t *testing.T) {
	engine := must(Open(background, model, nil))(t)
	tokens := prompt(t, engine)
	tokenizer := must(engine.Tokenizer())(t)
	session := must(engine.NewSession(nil))(t)
	tokenizer.Close()
	engine.Close()
	engine.Close()
	must(session.Sync(tokens, nil))(t)
	expect(t, len(goOn(t, session, 3)), 3)
	session.Close()
	session.Close()
	session.Stop()

	// What is closed is refused.
	_, err := session.Step(background)
	expectCode(t, err, InvalidArgument)
	_, err = session.Tokens()
	expectCode(t, err, InvalidArgument)
	_, err = engine.NewSession(nil)
	expectCode(t, err, InvalidArgument)
	_, err = tokenizer.Encode("closed with its engine")
	expectCode(t, err, InvalidArgument)
	expect(t, tokenizer.VocabSize(), 0)
}

func TestSeveralSessionsStepInOnePass(t *testing.T) {
	engine := open(t)
	tokens := prompt(t, engine)
	alone := openSession(t, engine)
	must(alone.Sync(tokens, nil))(t)
	expected := goOn(t, alone, 4)

	first, empty := openSession(t, engine), openSession(t, engine)
	must(first.Sync(tokens, nil))(t)
	var seen []int32
	for len(seen) < len(expected) {
		results := must(engine.Step(background, first, empty))(t)
		succeed(t, results[0].Err)
		if token := results[0].Step.Token; token >= 0 {
			seen = append(seen, token)
		}
		// A session's failure is its own.
		expectCode(t, results[1].Err, InvalidArgument)
	}
	expect(t, equal(seen, expected), true)

	stranger := openSession(t, open(t))
	_, err := engine.Step(background, stranger)
	expectCode(t, err, InvalidArgument)
	_, err = engine.Step(background, first, first)
	expectCode(t, err, Busy)
}
