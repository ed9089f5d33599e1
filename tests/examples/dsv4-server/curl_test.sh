#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: curl_test.sh SERVER MODEL
# Every endpoint of dsv4-server, as curl sees it: status, type, and what the bundled model says.
set -eu
server=$1 model=$2
command -v curl >/dev/null || { echo 'skipped: curl is not installed (apt-get install curl)'; exit 77; }
failures=0
. "$(dirname "$0")/start.sh"
start_server "$server" --model "$model" --max-sessions 4 --context 2048 --api-key secret

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
# request STATUS PATH CURL_OPTION...: the body goes to $place/body, the headers to $place/head.
request() {
  expected=$1 path=$2
  shift 2
  status=$(curl -sS -o "$place/body" -D "$place/head" -w '%{http_code}' --max-time 60 "$@" "$url$path") ||
    fail "$path: curl exits with $?"
  [ "$status" = "$expected" ] || fail "$path: status $status instead of $expected: $(head -c 500 "$place/body")"
}
key='Authorization: Bearer secret'
get() { request "$1" "$2" -H "$key"; }
post() { request "$1" "$2" -H "$key" -H 'Content-Type: application/json' -d "$3"; }
has() {  # TEXT...: of the body
  for text; do grep -qF -- "$text" "$place/body" || fail "$path: no $text in $(head -c 500 "$place/body")"; done
}
type_is() { grep -qi "^content-type: $1" "$place/head" || fail "$path: the type is not $1"; }

question='"messages": [{"role": "user", "content": "Do you know the capital of Russia?"}]'
answer='The capital of Russia is Moscow.'

grep -qE ': CPU, host memory [0-9.]+ [MG]B: about [0-9.]+ tokens a second \(predicted\)' "$place/server.log" ||
  fail "the log does not say what to expect: $(cat "$place/server.log")"
request 200 / && type_is 'text/html; charset=utf-8' && has '<html'
request 200 /health && has '{"status":"ok"}'
get 200 /v1/models && type_is application/json && has '"id":"dsv4-tiny"' '"max_model_len":2048'
post 200 /v1/chat/completions "{$question, \"temperature\": 0}"
type_is application/json
has "\"content\":\"$answer\"" '"finish_reason":"stop"' '"completion_tokens":11'
post 200 /v1/chat/completions "{$question, \"temperature\": 0, \"stream\": true}"
type_is text/event-stream
[ "$(tail -n 2 "$place/body" | head -n 1)" = 'data: [DONE]' ] || fail "$path: the stream has no end"
[ "$(sed -n 's/^data: .*"content":"\([^"]*\)".*/\1/p' "$place/body" | tr -d '\n')" = "$answer" ] ||
  fail "$path: the chunks are another text"
post 200 /v1/completions '{"prompt": [0, 278], "max_tokens": 4, "temperature": 0, "logprobs": 1}'
has '"completion_tokens":4' '"token_logprobs"'
post 200 /v1/responses '{"input": "Do you know the capital of Russia?", "temperature": 0}'
has '"object":"response"' '"status":"completed"' "$answer"
post 200 /v1/responses '{"input": "Do you know the capital of Russia?", "temperature": 0, "stream": true}'
has 'event: response.created' 'event: response.output_text.delta' 'event: response.completed'
post 200 /v1/messages "{$question, \"temperature\": 0, \"max_tokens\": 32}"
has '"type":"message"' "$answer" '"stop_reason":"end_turn"'
post 200 /v1/messages "{$question, \"temperature\": 0, \"max_tokens\": 32, \"stream\": true}"
has 'event: message_start' 'event: content_block_delta' 'event: message_stop'
post 200 /v1/messages/count_tokens "{$question}" && has '{"input_tokens":12}'
post 200 /tokenize '{"prompt": "The capital", "return_token_strs": true}'
has '"count":3' '"token_strs"'
tokens=$(sed -n 's/.*"tokens":\(\[[0-9,]*\]\).*/\1/p' "$place/body")
post 200 /detokenize "{\"tokens\": $tokens}" && has 'The capital'
get 200 /metrics && type_is text/plain && has 'vllm:generation_tokens_total{model_name="dsv4-tiny"}'

# What is refused.
request 401 /v1/models && has '"code":"invalid_api_key"'
get 404 /v1/nothing && has 'is no endpoint'
post 400 /v1/chat/completions '{"messages": [' && has 'not JSON'
post 400 /v1/chat/completions "{$question, \"functions\": [1]}" && has '"param":"functions"'
post 404 /v1/chat/completions "{$question, \"model\": \"other\"}" && has '"param":"model"'
head -c 10485761 /dev/zero | tr '\0' ' ' >"$place/large"
post 413 /v1/chat/completions "@$place/large" && has 'longer than'
# A client that goes away in the middle of a stream leaves no session behind.
curl -sN --max-time 1 -o /dev/null -H "$key" -H 'Content-Type: application/json' \
  -d "{$question, \"ignore_eos\": true, \"stream\": true}" "$url/v1/chat/completions" || true
tries=0
until get 200 /metrics && grep -qF 'vllm:num_requests_running{model_name="dsv4-tiny"} 0' "$place/body"; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || { fail 'a session stays after its client'; break; }
  sleep 0.1
done

kill -TERM "$server_pid"
status=0
wait "$server_pid" || status=$?
server_pid=
[ "$status" -eq 0 ] || fail "the server exits with $status"
[ "$failures" -eq 0 ]
