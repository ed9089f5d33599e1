#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: server_test.sh SOURCE_DIR BUILD_DIR
# dsv4-server for Windows under Wine, as curl sees it: answers, streams, a client that goes, a second server at its
# port, Ctrl-C, and --isolate with a worker and a supervisor that are killed. A SIGINT is Wine's Ctrl-C.
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
command -v curl >/dev/null || { echo 'skipped: curl is not installed (apt-get install curl)'; exit 77; }
server=$build/examples/dsv4-server/dsv4-server.exe
[ -e "$server" ] || { echo 'skipped: dsv4-server is not built (Boost, nlohmann_json, marked)'; exit 77; }
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill -9 $pid; rm -rf "$work"' EXIT
WINEPATH=$build/capi
export WINEPATH
fail() {
  echo "FAILED: $*"
  cat "$work/out" "$work/err" "$work/body" 2>/dev/null
  exit 1
}

# start OPTION...: sets $pid and $url. The model's folder and the server have names of any letters.
mkdir "$work/ü模😀"
cp "$source"/models/dsv4-tiny/* "$work/ü模😀"
cp "$server" "$work/ü模😀/ü模😀.exe"
start() {
  : >"$work/out"
  "$source/tests/windows/wine.sh" "$work/ü模😀/ü模😀.exe" --model "$work/ü模😀" --served-model-name tiny --port 0 "$@" \
    >"$work/out" 2>"$work/err" </dev/null &
  pid=$!
  for _ in $(seq 300); do
    url=$(sed -n 's/^dsv4-server: .* at \(http:.*[0-9]\)$/\1/p' "$work/out")
    [ -z "$url" ] || return 0
    sleep 0.1
  done
  fail "$* does not start"
}
# ended: how it ends.
ended() {
  code=0
  wait $pid || code=$?
  pid=
}
get() { curl -sS --max-time 60 -o "$work/body" "$url$1" || fail "$1: curl exits with $?"; }
post() { curl -sSN --max-time 60 -o "$work/body" -H 'Content-Type: application/json' -d "$2" "$url$1"; }
has() { grep -qF -- "$1" "$work/body" || fail "$2: no $1"; }
# waits_for WHAT METRIC: up to 20 s.
waits_for() {
  for _ in $(seq 100); do
    get /metrics
    ! grep -q "$2" "$work/body" || return 0
    sleep 0.2
  done
  fail "$1: no $2"
}
question='"messages":[{"role":"user","content":"What is the capital of France?"}]'
answers() {
  post /v1/chat/completions "{\"model\":\"tiny\",$question}" || fail "$1: curl exits with $?"
  has 'The capital of France is Paris.' "$1"
}

start
if grep -q "$(printf '\r')" "$work/out"; then fail 'carriage returns in what a program reads'; fi
get /health
has ok health
answers 'an answer'
post /v1/chat/completions "{\"model\":\"tiny\",\"stream\":true,$question}" || fail "a stream: curl exits with $?"
has 'data: [DONE]' 'a stream'
[ "$(grep -c '^data: {' "$work/body")" -gt 5 ] || fail 'a stream in one piece'
post /v1/chat/completions '{"model":"tiny"' || fail 'a broken request'
has 'invalid_request_error' 'a broken request'

# A client that goes ends its request.
story="{\"model\":\"tiny\",\"stream\":true,\"max_tokens\":100000,\"ignore_eos\":true,$question}"
curl -sN --max-time 1 -o "$work/body" -H 'Content-Type: application/json' -d "$story" "$url/v1/chat/completions" &&
  fail 'a story of 100,000 tokens is over after a second'
has 'data: {' 'a story'
waits_for 'a client that went' '^vllm:num_requests_running{[^}]*} 0$'
waits_for 'a client that went' 'finished_reason="abort"} 1$'

# The port is taken.
code=0
"$source/tests/windows/wine.sh" "$server" --model "$source/models/dsv4-tiny" --port "${url##*:}" </dev/null \
  >"$work/second" 2>&1 || code=$?
[ $code -eq 1 ] && grep -q 'cannot listen on 127.0.0.1' "$work/second" || { cat "$work/second"; fail 'a second server'; }

# Ctrl-C lets what runs end; a second one ends that, too.
curl -sN --max-time 60 -o "$work/body" -H 'Content-Type: application/json' -d "$story" "$url/v1/chat/completions" &
client=$!
waits_for 'a story' '^vllm:num_requests_running{[^}]*} 1$'
kill -INT $pid
sleep 1
kill -0 $pid || fail 'Ctrl-C does not wait for the answer'
kill -INT $pid
wait $client || fail 'the last answer is cut'
ended
[ $code -eq 0 ] || fail "Ctrl-C: exit code $code"

# A worker of its own: another one answers when it is killed, and it ends with its supervisor. Wine gives the worker a
# command line of Windows' paths.
workers() { pgrep -f "^Z:.*$(basename "$work").*--isolate" || true; }
start --isolate
answers 'isolated'
kill -9 $(workers)
answers 'after the worker was killed'
get /metrics
has 'dsv4:reopenings_total{model_name="tiny"} 1' 'after the worker was killed'
grep -q 'the worker was ended .*; another one is started' "$work/err" || fail 'no word of the worker'
kill -INT $pid
ended
[ $code -eq 0 ] || fail "Ctrl-C with --isolate: exit code $code"
[ -z "$(workers)" ] || fail 'the worker outlives its supervisor'
start --isolate
[ -n "$(workers)" ] || fail 'no worker'
kill -9 $pid
ended
for _ in $(seq 50); do
  [ -n "$(workers)" ] || exit 0
  sleep 0.1
done
fail 'the worker outlives a supervisor that is killed'
