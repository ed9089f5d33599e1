#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: cli_terminal_test.sh CHAT MODEL_DIR
# dsv4-chat on a pseudo-terminal, which util-linux's `script` makes: the interactive chat.
set -eu
chat=$1 model=$2
if ! script --version 2>/dev/null | grep -q util-linux; then
  echo 'skipped: there is no script(1) of util-linux'
  exit 77
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
failures=0

expect() {  # WHAT CONDITION...
  what=$1
  shift
  if ! "$@"; then
    echo "FAILED: $what"
    cat -v screen
    failures=$((failures + 1))
  fi
}

# on_terminal COMMAND: runs it with the caller's stdin typed on the terminal. ./screen is what appears,
# ./status the exit code. Without `exec` a Ctrl-C would also end the shell that script(1) starts.
on_terminal() {
  TERM=xterm NO_COLOR= timeout 100 script -qec "exec $1" /dev/null >screen 2>&1 && echo 0 >status ||
    echo $? >status
}

# Waits, at most 30 seconds, until PATTERN matches COUNT lines of the screen.
await() {  # PATTERN COUNT
  tries=0
  until [ "$(tr '\r' '\n' <screen | grep -c "$1")" -ge "$2" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { echo "no $1 in 30 seconds" >&2; return 0; }
    sleep 0.1
  done
}

# Types each LINE at a prompt of its own.
typed() {
  prompts=0
  for line; do
    prompts=$((prompts + 1))
    await '^> ' "$prompts"
    printf '%s\n' "$line"
  done
}

: >screen
typed '/help' 'What is the capital of France?' 'And of Germany?' '/stats' '/frob' '/think low' \
  '/think max' '/think high' 'Calculate 91 + 49.' '/think off' '/system You are a friendly assistant.' '/new' \
  'What is the capital of Italy?' '/quit' |
  on_terminal "'$chat' -m '$model'"
expect 'exit code 0' grep -qx 0 status
expect 'the commands' grep -q '/system \[TEXT\]' screen
expect 'the first answer' grep -q 'The capital of France is Paris\.' screen
expect 'reuse of the first turn in the second' \
  grep -Eq 'prompt [0-9]+ tokens \([1-9][0-9]* cached' screen
expect 'an unknown command' grep -q 'unknown command /frob' screen
expect 'a thinking mode that there is not' grep -q '"low" is not off, high or max' screen
expect 'dim reasoning' grep -q "$(printf '\033')\[2m91 + 40 = 131" screen
expect 'the answer after it' grep -q '^91 + 49 = 140' screen
expect 'an answer after /new' grep -q 'The capital of Italy is Rome' screen
expect 'a progress bar for loading' grep -q 'loading \[' screen
expect 'a progress bar for the prompt' grep -q 'reading \[' screen

# Questions taken back and answered again; the answer is the same, for it is the most likely one.
: >screen
typed '/undo' '/regen' 'What is the capital of France?' '/regen' '/undo' '/undo' \
  'What is the capital of Italy?' '/quit' | on_terminal "'$chat' -m '$model' --temp 0"
expect 'two answers' test "$(grep -c 'The capital of France is Paris' screen)" -eq 2
expect 'nothing to undo twice' test "$(grep -c 'no question yet' screen)" -eq 2
expect 'nothing to answer again' grep -q 'there is no answer yet' screen
expect 'a question taken back' grep -q 'the last question is forgotten' screen
expect 'which is not in the prompt' grep -q 'prompt 13 tokens' screen
expect 'an answer after that' grep -q 'The capital of Italy is Rome' screen

# A tool is called, its result typed; then one that is not answered.
cat >tools.json <<'END'
[{"type": "function", "function": {"name": "set_light", "description": "Switch a light on or off",
  "parameters": {"type": "object", "properties": {"room": {"type": "string", "description":
  "The room"}, "on": {"type": "boolean", "description": "Light on"}}, "required": ["room", "on"]}}}]
END
: >screen
{
  await '^> ' 1
  printf 'Turn off the light in the hall.\n'
  await '^result of set_light> ' 1
  printf '{"status": "ok"}\n'
  await '^> ' 2
  printf 'Turn off the light in the hall.\n'
  await '^result of set_light> ' 2
  printf '/skip\n'
  await '^> ' 3
  printf '/quit\n'
} | on_terminal "'$chat' -m '$model' --tools tools.json -s 'You are a friendly assistant.'"
expect 'exit code 0 with tools' grep -qx 0 status
expect 'a readable call' grep -q 'call_2_0: set_light {"room": "hall", "on": false}' screen
expect 'an answer to its result' grep -q 'The light in the hall is now off' screen
expect 'the call reused' grep -Eq 'prompt [0-9]+ tokens \([1-9][0-9]* cached \+ [1-4][0-9] new' screen

# Ctrl-D leaves.
: >screen
typed "$(printf '\004')" | on_terminal "'$chat' -m '$model'"
expect 'exit code 0 after Ctrl-D' grep -qx 0 status

# Ctrl-C stops an answer, here a long one of random words from the slow backend, keeps the turn, and
# leaves at the prompt.
: >screen
{
  typed 'Write a short story about Ralf and a ring.'
  await 'reading' 1
  sleep 0.5
  printf '\003'
  await 'stopped' 1
  printf 'And another one.\n'
  await 'reading' 2
  sleep 0.5
  printf '\003'
  await 'stopped' 2
  printf '\003'
} | on_terminal "'$chat' -m '$model' --temp 100 --seed 2 --backend reference"
expect 'two stopped answers' test "$(grep -c 'what stands above is kept' screen)" -eq 2
expect 'the first turn in the second prompt' \
  grep -Eq 'prompt [0-9]+ tokens \([1-9][0-9]* cached' screen
expect 'exit code 0 after Ctrl-C at the prompt' grep -qx 0 status

# One-shot on a terminal: reasoning on stderr, dim; without colour marked by a word.
on_terminal "'$chat' -m '$model' -p 'Calculate 91 + 49.' --think 2>&1 >answer" </dev/null
expect 'reasoning on the terminal' grep -q '91 + 40 = 131' screen
expect 'the answer alone on stdout' test "$(cat answer)" = '91 + 49 = 140'
on_terminal "'$chat' -m '$model' -p 'Calculate 91 + 49.' --think --color never" </dev/null
expect 'reasoning marked without colour' grep -q '\[reasoning\] 91 + 40' screen

on_terminal "'$chat' -m '$model' -p 'Calculate 91 + 49.' --think --hide-thinking" </dev/null
expect 'hidden reasoning' sh -c '! grep -q 131 screen'
expect 'the answer without it' grep -q '91 + 49 = 140' screen

# Random text holds every byte there is; none of its control characters reaches the terminal.
on_terminal "'$chat' -m '$model' -p 'Write a short story about Ralf and a ring.' --temp 100 \
  --seed 3 -n 160 2>/dev/null" </dev/null
expect 'an answer of some length' test "$(wc -c <screen)" -gt 300
expect 'no control character' sh -c "tr -d '\\r\\n\\t' <screen | LC_ALL=C grep -qav '[[:cntrl:]]'"

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
