#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: cli_test.sh CHAT MODEL_DIR
# dsv4-chat without a terminal: what comes on stdout and stderr, and how it ends.
set -eu
chat=$1 model=$2
. "$(dirname "$0")/../support/expect.sh"

run() {  # ARGUMENT...: of a model's answer; stdin is the caller's
  status=0
  timeout 60 "$chat" -m "$model" "$@" >out 2>err || status=$?
}

question='What is the capital of France?'
echo 'The capital of France is Paris.' >paris

run -p "$question" </dev/null
expect 'the answer, and nothing else, on stdout' cmp -s out paris
expect 'exit code 0' test "$status" -eq 0
for text in 'prompt 13 tokens (0 cached + 13 new) at ' '; generated ' ' tok/s' 'first token ' '; context ' \
  '/16384; cache '; do
  expect "\"$text\" in the statistics" grep -qF "$text" err
done

run -p "$question" --draft 3 </dev/null
expect 'the same answer with drafts' cmp -s out paris
expect 'their statistics' grep -Eq \
  '^drafts [1-9][0-9]* of [1-9][0-9]* accepted \(first ones [1-9][0-9]* %\), [1-4]\.[0-9]+ tokens a forward$' err
expect 'statistics in lines of up to 80 columns' awk 'length > 80 { long = 1 } END { exit long || NR != 3 }' err
run -p "$question" --draft 0 --json </dev/null
expect 'none without drafts' sh -c '! grep -q drafts err'
expect 'no drafts as JSON' grep -q '"drafted_tokens": 0, "accepted_tokens": 0' out

mkdir limited
ln -s "$model"/* limited
rm limited/generation_config.json
sed 's/"eos_token_id"/"max_new_tokens": 3, "eos_token_id"/' "$model/generation_config.json" \
  >limited/generation_config.json
run -m limited -p "$question" </dev/null
expect "the model folder's max_new_tokens" grep -q '; generated 3 at ' err
run -m limited -p "$question" -n 1000 </dev/null
expect '-n in its place' cmp -s out paris

run -p "$question" --no-stats </dev/null
expect 'nothing on stderr without statistics' test ! -s err
expect 'no escape sequence anywhere' cmp -s out paris

NO_COLOR=1 run -p "$question" --color=always </dev/null
expect 'colour when asked for' grep -q "$(printf '\033')" err
expect 'none on stdout' cmp -s out paris

echo "$question" | run
expect 'a piped question' cmp -s out paris
echo "of France?" | run -p 'What is the capital'
expect 'a piped end of the question' grep -q capital out
echo 'of France?' >file
run -p 'What is the capital' -f file </dev/null
expect 'the end of the question in a file' grep -q capital out
echo "$question" >file
run -f file </dev/null
expect 'a question in a file' cmp -s out paris
# The three in their order, as the conversation that is kept shows them.
echo three | run -p one -f file -n 1 --save kept
expect 'prompt, file and input in one message' \
  grep -qF '"content": "one\n'"$question"'\nthree"' kept.messages.json
expect 'a kept conversation is its owner'"'"'s alone' test "$(stat -c %a kept kept.messages.json | tr '\n' ' ')" = '600 600 '
run --load kept -p "$question" --save kept </dev/null
expect 'what was kept is not computed again' grep -Eq '\([1-9][0-9]* cached' err
expect 'and is kept with what follows' grep -q 'capital of France.*capital of France' kept.messages.json

# Without the form of a conversation, its markers written out.
run --raw --no-stats -p "<｜User｜>$question<｜Assistant｜></think>" </dev/null
expect 'raw text' cmp -s out paris
run --raw -p 'one two' -n 3 </dev/null
expect 'three tokens of raw text' grep -q 'generated 3 at ' err

# What the options of the choice do.
run -p "$question" --stop ' is' --no-stats </dev/null
expect 'a stop string' test "$(cat out)" = 'The capital of France'

run -p "$question" --regex 'The capital of \w+ is \w+\.' </dev/null
expect 'an answer that matches anyway' cmp -s out paris
run -p "$question" --regex '[0-9]{4}' --draft 3 --think --think-budget 5 --hide-thinking --no-stats </dev/null
expect 'an answer that is made to match' grep -qxE '[0-9]{4}' out
echo '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
  "additionalProperties": false}' >schema.json
run -p "$question" --schema schema.json --temp 1.5 --seed 1 --no-stats </dev/null
expect 'JSON by a schema' sh -c "tr -d ' \t\r\n' <out | grep -qxE '\{\"n\":-?[0-9.e+E-]+\}'"
run -p "$question" --presence-penalty 2 --frequency-penalty 2 --repetition-penalty 100 --temp 0 </dev/null
expect 'another answer by penalties' sh -c '! cmp -s out paris'

# The machine's devices, without a model.
"$chat" --list-devices >out 2>err </dev/null
expect 'the CPU in the list' grep -q '^cpu  .* GB free$' out
expect 'GPUs, or why there is none' grep -q '^cuda' out
"$chat" --list-devices --json >out 2>err </dev/null
expect 'devices as JSON' grep -qE '^\{"event": "devices", "devices": \[\{"id": "cuda.*\{"id": "cpu", .*\}$' out

# The engine as it was asked for.
run --plan --json --backend reference --numerics exact --cache-format fp8_per_tensor --threads 1 --chunk 64 \
  --draft 2 -c 1024 --devices 0 </dev/null
for text in '"backend": "reference"' '"numerics": "exact"' '"cache_format": "fp8_per_tensor"' \
  '"threads": 1' '"context_tokens": 1024' '"prefill_chunk_tokens": 64' '"max_draft_tokens": 2'; do
  expect "$text in the plan" grep -qF "$text" out
done
run -p "$question" --cache-format fp8_per_tensor </dev/null
expect 'the same answer from rows in fp8' cmp -s out paris
expect 'their format in the statistics' grep -q '; cache [0-9.]* [kM]B (fp8_per_tensor rows)' err
run --plan --json --devices 0,1 -c 1024 </dev/null
expect 'two devices in the plan' grep -qF '"device_count": 2' out
run -p "$question" --devices 0,1 --no-stats </dev/null
expect 'the answer of one device on two' cmp -s out paris
run -p "$question" -v --no-stats </dev/null
expect 'what the library logs' grep -q 'opened on backend' err
printf '%s' "$question" | run -p ''
expect 'a piped question and an empty -p' cmp -s out paris
run -p "$question" <&-
expect 'an answer with stdin closed' cmp -s out paris

# The other ways to write options.
run --prompt="$question" --context=100 --no-stats </dev/null
expect 'long options with =' cmp -s out paris
status=0
"$chat" "-m$model" "-p$question" -c 64 --no-stats >out 2>err </dev/null || status=$?
expect 'short options with their value attached' cmp -s out paris
run -p "$question" -n 3 </dev/null
expect 'an answer cut by -n' grep -q 'generated 3 at ' err
expect 'which is the start of the whole' sh -c 'grep -qF "$(cat out)" paris'
run -p "$question" --backend reference --threads 1 </dev/null
expect 'the reference backend' cmp -s out paris
run -p "$question" -s 'You are a friendly assistant.' </dev/null
expect 'a system message' grep -q Paris out

# Questions and answers of gates.json. Reasoning is never on stdout, nor on a stderr that is no terminal.
run -p 'Calculate 91 + 49.' --think --no-stats </dev/null
expect 'the answer after reasoning' grep -qx '91 + 49 = 140' out
expect 'no reasoning' test ! -s err
run -p 'Calculate 91 + 49.' --think --think-budget 4 --json --no-stats </dev/null
expect 'reasoning cut by its budget' test "$(grep -c '"event": "reasoning"' out)" -eq 4
expect 'an answer after it' grep -q '"event": "text"' out
run -p 'Calculate 91 + 49.' --think off --no-stats </dev/null
expect 'the answer at once' grep -qx '91 + 49 = 140' out

# Tools, as gates.json has them: calls on stderr, nothing on stdout but the model's text.
cat >tools.json <<'END'
[{"type": "function", "function": {"name": "set_light", "description": "Switch a light on or off",
  "parameters": {"type": "object", "properties": {"room": {"type": "string", "description":
  "The room"}, "on": {"type": "boolean", "description": "Light on"}}, "required": ["room", "on"]}}}]
END
for think in off low high; do
  run --tools tools.json --think $think -s 'You are a friendly assistant.' --no-stats \
    -p 'Turn off the light in the hall.' </dev/null
  expect "a call with --think $think" \
    test "$(cat err)" = 'call_2_0: set_light {"room": "hall", "on": false}'
  expect 'exit code 0 of a call' test "$status" -eq 0
  expect 'nothing else' test ! -s out
done

# Lines of JSON: the pieces of one kind, joined.
pieces() {  # EVENT
  sed -n "s/^{\"event\": \"$1\".*\"text\": \"\(.*\)\".*}\$/\1/p" out | sed 's/", "repaired.*//' | tr -d '\n'
}
run --json --think -p 'Calculate 91 + 49.' </dev/null
expect 'reasoning as JSON' sh -c "echo '$(pieces reasoning)' | grep -q '91 + 40 = 131'"
expect 'text as JSON' test "$(pieces text)" = '91 + 49 = 140'
expect 'one event a line' sh -c '! grep -qv "^{\"event\": \"[a-z_]*\", .*}$" out'
expect 'the end' grep -q '^{"event": "end", "finish": "stop", "incomplete": false, "text": "", ' out
expect 'its cost' grep -Eq '"prompt_tokens": 11, "cached_tokens": 0, "generated_tokens": [0-9]+' out
expect 'statistics on stderr' grep -q 'prompt 11 tokens' err
run --json --no-stats -n 3 -p "$question" </dev/null
expect 'a cut answer as JSON' grep -q '"event": "end", "finish": "length"' out
run --json --no-stats --tools tools.json -s 'You are a friendly assistant.' \
  -p 'Turn off the light in the hall.' </dev/null
expect 'a call as JSON' grep -qxF \
  '{"event": "tool_call_start", "call": 0, "id": "call_2_0", "name": "set_light"}' out
expect 'its arguments' test "$(pieces tool_call_arguments)" = \
  '{\"room\": \"hall\", \"on\": false}'
expect 'its end' grep -qxF '{"event": "tool_call_end", "call": 0, "repaired": false}' out
expect 'nothing on stderr' test ! -s err
run --json --no-stats --frob </dev/null
expect 'a wrong option as JSON' grep -qxF \
  '{"event": "error", "status": "", "exit_code": 2, "message": "unknown option --frob"}' out
expect 'exit code 2' test "$status" -eq 2
run --json -c 16385 -p "$question" </dev/null
expect 'an error of the library as JSON' grep -q \
  '^{"event": "error", "status": "INVALID_ARGUMENT", "exit_code": 2, "message": ".*context_tokens' out

# Sampling: the same seed, the same text.
story='Write a short story about Ralf and a ring.'
for seed in 5 5 6; do
  run -p "$story" --temp 3 --top-k 200 --top-p 0.99 --min-p 0.001 --seed $seed -n 24 </dev/null
  cat out >>"story$seed"
  echo >>"story$seed"
done
head -n "$(($(wc -l <story5) / 2))" story5 >half1
tail -n "$(($(wc -l <story5) / 2))" story5 >half2
expect 'the same text from the same seed' cmp -s half1 half2
expect 'another text from another seed' sh -c '! cmp -s half1 story6'

# Without a model.
status=0
"$chat" --help >out 2>err || status=$?
expect '--help on stdout' grep -q 'usage: dsv4-chat -m MODEL' out
expect 'exit code 0 of --help' test "$status" -eq 0
"$chat" --version >out 2>err
expect '--version' grep -q '^dsv4 [0-9]*\.[0-9]*\.[0-9]* (' out

# A reader that went away ends the program quietly.
mkfifo pipe
: <pipe &
exec 9>pipe
wait
status=0
"$chat" -m "$model" -p "$question" --no-stats 2>err >&9 </dev/null || status=$?
exec 9>&-
echo "$status" >code
expect 'exit code 1 for a broken pipe' grep -qx 1 code
expect 'no word about a broken pipe' test ! -s err
status=0
"$chat" -m "$model" -p "$question" --no-stats >/dev/full 2>err </dev/null || status=$?
expect 'exit code 1 for a full disk' test "$status" -eq 1
expect 'which it reports' grep -q 'standard output' err
# So is a disk that is full when the conversation is saved: nothing is wrong with the model.
status=0
(trap '' XFSZ; ulimit -f 1; exec "$chat" -m "$model" -p "$question" --no-stats --save full) \
  >out 2>err </dev/null || status=$?
expect 'exit code 1 for a save on a full disk' test "$status" -eq 1
expect 'the file that cannot be saved' grep -q '^dsv4-chat: .*full' err
expect 'no file is left' test ! -e full

# Little memory: not what sanitizers work in.
if ! grep -q __asan_init "$chat" && ! grep -q __tsan_init "$chat"; then
  status=0
  (ulimit -v 55000 && exec "$chat" -m "$model" -p "$question") >out 2>err </dev/null || status=$?
  expect 'exit code 4 without memory' test "$status" -eq 4
  expect 'one line about it' test "$(wc -l <err)" -eq 1
fi

# interrupt FILE TEXT ARGUMENT...: Ctrl-C when FILE has TEXT. The reference backend is slow enough to be
# caught in the middle; the background job of a script ignores SIGINT unless dsv4-chat installs its own
# handler.
interrupt() {
  file=$1 text=$2
  shift 2
  : >"$file"
  "$chat" -m "$model" --backend reference "$@" >out 2>err </dev/null &
  pid=$!
  tries=0
  until grep -q "$text" "$file" || [ "$tries" -ge 300 ]; do
    tries=$((tries + 1))
    sleep 0.1
  done
  kill -INT "$pid"
  status=0
  wait "$pid" || status=$?
}
long=$(awk 'BEGIN { for (i = 0; i < 3000; i++) printf "word " }')
interrupt err 'opened on backend' -p "$long" -v
expect 'exit code 130 after Ctrl-C' test "$status" -eq 130
expect 'nothing on stdout' test ! -s out
interrupt out '"event": "text"' -p "$story" --temp 100 --seed 2 --json
expect 'exit code 130 after Ctrl-C in an answer' test "$status" -eq 130
expect 'its end as JSON' grep -q '"event": "end", "finish": "interrupted"' out

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
