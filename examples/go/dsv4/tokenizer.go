// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

// Tokenizer turns text to token ids and back.
type Tokenizer struct {
	handle *handle // its own, or the engine's
	c      *C.dsv4_tokenizer
}

// OpenTokenizer opens a tokenizer.json, or that of a model folder.
func OpenTokenizer(path string) (*Tokenizer, error) {
	memory := arena{err: checkABI()}
	defer memory.free()
	cPath := memory.cString("path", path)
	var c *C.dsv4_tokenizer
	err := memory.check(func(failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_tokenizer_open(cPath, &c, failure)
	})
	if err != nil {
		return nil, err
	}
	own := &handle{what: "tokenizer", free: func() { C.dsv4_tokenizer_close(c) }}
	return &Tokenizer{handle: own, c: c}, nil
}

// Close frees the tokenizer. An engine frees its own tokenizer.
func (t *Tokenizer) Close() {
	if t.handle.what == "tokenizer" {
		t.handle.close(nil)
	}
}

// Encode is for text from users: no token of the result is a control token.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	return t.encode(text, C.DSV4_ENCODE_PLAIN)
}

// EncodeWithAddedTokens is for trusted text: markers in it become control tokens.
func (t *Tokenizer) EncodeWithAddedTokens(text string) ([]int32, error) {
	return t.encode(text, C.DSV4_ENCODE_ADDED_TOKENS)
}

func (t *Tokenizer) encode(text string, flags C.uint32_t) ([]int32, error) {
	bytes := []byte(text)
	return fillTokens(t.handle.use, len(text), func(data *C.int32_t, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_tokenizer_encode(t.c, textPointer(bytes), C.size_t(len(bytes)), flags, data,
			capacity, needed, failure)
	})
}

// Decode turns ids to text.
func (t *Tokenizer) Decode(tokens []int32) (string, error) {
	return fillText(t.handle.use, 8*len(tokens), func(data *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_tokenizer_decode(t.c, ids(tokens), C.size_t(len(tokens)), data, capacity,
			needed, failure)
	})
}

// TokenBytes returns the bytes of one token, which may be a part of a character.
func (t *Tokenizer) TokenBytes(token int32) ([]byte, error) {
	bytes, err := fillText(t.handle.use, 32, func(data *C.char, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_tokenizer_get_token_bytes(t.c, C.int32_t(token), data, capacity, needed, failure)
	})
	return []byte(bytes), err
}

// AddedToken returns the id of the control token with exactly this text, as in "</think>".
func (t *Tokenizer) AddedToken(text string) (id int32, ok bool) {
	var memory arena
	defer memory.free()
	cText := memory.cString("text", text)
	if memory.err != nil || t.handle.acquire(false) != nil {
		return 0, false
	}
	defer t.handle.release()
	id = int32(C.dsv4_tokenizer_get_added_token(t.c, cText))
	return id, id >= 0
}

// VocabSize returns one more than the highest id; 0 of a closed tokenizer.
func (t *Tokenizer) VocabSize() int32 {
	if t.handle.acquire(false) != nil {
		return 0
	}
	defer t.handle.release()
	return int32(C.dsv4_tokenizer_get_vocab_size(t.c))
}

// Render returns the prompt of a JSON array of messages in the form of OpenAI's chat API. No message
// can forge a turn. options may be nil.
func (t *Tokenizer) Render(messages string, options *ChatOptions) ([]int32, error) {
	var memory arena
	defer memory.free()
	json, length := memory.text(messages)
	cOptions := options.c(&memory)
	return fillTokens(t.handle.use, 1024, func(data *C.int32_t, capacity C.size_t, needed *C.size_t,
		failure **C.dsv4_error) C.dsv4_status {
		return C.dsv4_chat_render(t.c, json, C.size_t(length), cOptions, data, capacity, needed, failure)
	})
}
