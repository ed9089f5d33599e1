// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import "unsafe"

// Sampling is how a session chooses the next token. 0, and empty, is off; Engine.Sampling gives the
// model's own.
type Sampling struct {
	Temperature       float32 // 0: the most likely token
	TopK              int32
	TopP              float32
	MinP              float32
	RepetitionPenalty float32
	Seed              uint64
	MaxTokens         int64
	PresencePenalty   float32
	FrequencyPenalty  float32
	Bias              []TokenBias
	BannedTokens      []int32
	ForcedTokens      []int32 // what the output begins with
	MaxThinkingTokens int64
	StopTokens        []int32
	StopStrings       []string
	LogProbs          int32 // how many of the most likely tokens are kept for Session.LogProbs
	DraftTokens       int32
	Grammar           *Grammar // what the output must match; nil: anything
}

// TokenBias is what is added to a token's logit.
type TokenBias struct {
	Token int32
	Bias  float32
}

func (s *Sampling) c(memory *arena) *C.dsv4_sampling {
	c := (*C.dsv4_sampling)(memory.zeroed(C.sizeof_dsv4_sampling))
	tokens := func(values []int32) (*C.int32_t, C.uint64_t) {
		return (*C.int32_t)(unsafe.Pointer(array(memory, values))), C.uint64_t(len(values))
	}
	c.struct_size = C.sizeof_dsv4_sampling
	c.temperature = C.float(s.Temperature)
	c.top_k = C.int32_t(s.TopK)
	c.top_p = C.float(s.TopP)
	c.min_p = C.float(s.MinP)
	c.repetition_penalty = C.float(s.RepetitionPenalty)
	c.seed = C.uint64_t(s.Seed)
	c.max_tokens = C.int64_t(s.MaxTokens)
	c.presence_penalty = C.float(s.PresencePenalty)
	c.frequency_penalty = C.float(s.FrequencyPenalty)
	biasTokens, biases := make([]int32, len(s.Bias)), make([]C.float, len(s.Bias))
	for i, bias := range s.Bias {
		biasTokens[i], biases[i] = bias.Token, C.float(bias.Bias)
	}
	c.bias_tokens, c.bias_count = tokens(biasTokens)
	c.biases = array(memory, biases)
	c.banned_tokens, c.banned_count = tokens(s.BannedTokens)
	c.forced_tokens, c.forced_count = tokens(s.ForcedTokens)
	c.max_thinking_tokens = C.int64_t(s.MaxThinkingTokens)
	c.stop_tokens, c.stop_token_count = tokens(s.StopTokens)
	strings, lengths := make([]*C.char, len(s.StopStrings)), make([]C.uint64_t, len(s.StopStrings))
	for i, text := range s.StopStrings {
		strings[i], lengths[i] = memory.text(text)
	}
	c.stop_strings, c.stop_string_lengths = array(memory, strings), array(memory, lengths)
	c.stop_string_count = C.uint64_t(len(strings))
	c.log_probs = C.int32_t(s.LogProbs)
	c.draft_tokens = C.int32_t(s.DraftTokens)
	if s.Grammar != nil {
		c.grammar = s.Grammar.c
		memory.grammar = s.Grammar
	}
	return c
}

// newSampling copies what the library filled, whose pointers are valid for their counts.
func newSampling(c *C.dsv4_sampling) Sampling {
	tokens := func(values *C.int32_t, count C.uint64_t) []int32 {
		return append([]int32(nil), unsafe.Slice((*int32)(unsafe.Pointer(values)), int(count))...)
	}
	s := Sampling{
		Temperature:       float32(c.temperature),
		TopK:              int32(c.top_k),
		TopP:              float32(c.top_p),
		MinP:              float32(c.min_p),
		RepetitionPenalty: float32(c.repetition_penalty),
		Seed:              uint64(c.seed),
		MaxTokens:         int64(c.max_tokens),
		PresencePenalty:   float32(c.presence_penalty),
		FrequencyPenalty:  float32(c.frequency_penalty),
		BannedTokens:      tokens(c.banned_tokens, c.banned_count),
		ForcedTokens:      tokens(c.forced_tokens, c.forced_count),
		MaxThinkingTokens: int64(c.max_thinking_tokens),
		StopTokens:        tokens(c.stop_tokens, c.stop_token_count),
		LogProbs:          int32(c.log_probs),
		DraftTokens:       int32(c.draft_tokens),
		Grammar:           shareGrammar(c.grammar),
	}
	biases := unsafe.Slice(c.biases, int(c.bias_count))
	for i, token := range tokens(c.bias_tokens, c.bias_count) {
		s.Bias = append(s.Bias, TokenBias{token, float32(biases[i])})
	}
	// Filled by the library, they have their lengths.
	lengths := unsafe.Slice(c.stop_string_lengths, int(c.stop_string_count))
	for i, text := range unsafe.Slice(c.stop_strings, int(c.stop_string_count)) {
		s.StopStrings = append(s.StopStrings, goText(text, lengths[i]))
	}
	return s
}
