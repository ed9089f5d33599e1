// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

import "unsafe"

// Greedy is a temperature: always the most likely token.
const Greedy float32 = C.DSV4_GREEDY

// RandomSeed is a seed: a random one is drawn. Stats.Seed tells which.
const RandomSeed uint64 = C.DSV4_SEED_RANDOM

// Sampling is how a session chooses the next token. 0 is the model's own value, which Engine.Sampling
// gives.
type Sampling struct {
	Temperature       float32
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

// newSampling copies the values that 0 stands for.
func newSampling(c *C.dsv4_sampling) Sampling {
	return Sampling{
		Temperature:       float32(c.temperature),
		TopK:              int32(c.top_k),
		TopP:              float32(c.top_p),
		MinP:              float32(c.min_p),
		RepetitionPenalty: float32(c.repetition_penalty),
		Seed:              uint64(c.seed),
		MaxTokens:         int64(c.max_tokens),
	}
}
