#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: verify_command_line_test.sh DSV4_VERIFY SOURCE_DIR RECORDED_TEXTS_DIR
# Exit codes and messages of dsv4-verify for mistakes, and that it leaves nothing behind.
set -eu
verify=$1
oracle=$2/tests/oracle
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp"
export TMPDIR="$work/tmp"

# expect CODE TEXT ARGUMENT...: the exit code, and a text somewhere in the output.
expect() {
  code=$1 text=$2
  shift 2
  status=0
  "$verify" "$@" >"$work/out" 2>&1 || status=$?
  if [ "$status" -ne "$code" ] || ! grep -qF -- "$text" "$work/out"; then
    echo "dsv4-verify $*: exit $status, expected $code with '$text'; printed:"
    cat "$work/out"
    exit 1
  fi
}

# One page about the machine, without the user's folders.
expect 2 '1 file arguments are needed, 2 given' doctor one two
expect 2 'option --limit = 0 is not in 1..86400' doctor --limit 0
expect 0 'usable cores, ' doctor
mkdir "$work/secret"
ln -s "$2/models/dsv4-tiny" "$work/secret/a-model"
HOME=$work/secret expect 0 '  chosen       cpu, weights ' doctor "$work/secret/a-model"
for text in 'model          a-model' '  disk         ' ' tokens a second (predicted)'; do
  grep -qF -- "$text" "$work/out" || { echo "doctor: no '$text'"; cat "$work/out"; exit 1; }
done
! grep -F secret "$work/out" || { echo "doctor: a folder of the user is shown"; exit 1; }
HOME=$work/secret expect 3 '  chosen       no: missing/config.json: no such file' doctor "$work/secret/missing"
! grep -F secret "$work/out" || { echo "doctor: a folder of the user is shown"; exit 1; }

# A model by its name in the hub's cache, and one that is not there.
mkdir -p "$work/hub/models--acme--tiny/snapshots/one"
for file in "$2"/models/dsv4-tiny/*; do ln -s "$file" "$work/hub/models--acme--tiny/snapshots/one/"; done
HF_HUB_CACHE=$work/hub expect 0 'fingerprint  4eed995de9ce01b913fa2910801525a0' hash acme/tiny
HF_HUB_CACHE=$work/hub expect 0 'model          acme/tiny' doctor acme/tiny
HF_HUB_CACHE=$work/hub expect 3 'To download it: hf download acme/none' gates acme/none

odd="$oracle/cases/odd.json $oracle/expected/odd.published.safetensors"
expect 0 "usage: dsv4-verify" --help
expect 0 "dsv4-verify " --version
expect 2 "a command is needed"
expect 2 "unknown command orakel" orakel
expect 2 "--hours or --tokens is needed" soak .
expect 2 "--hours = much" soak --hours much .
expect 2 "--sessions = 0" soak --tokens 1 --sessions 0 .
expect 3 "$work/none" soak --tokens 1 "$work/none"
expect 0 "0 sessions differ, 0 calls failed" soak --tokens 50 --sessions 2 --prompts 2 "$2/models/dsv4-tiny"
expect 0 "37 tokens, 4 rows: distance 0." canary "$2/models/dsv4-tiny"
expect 0 "tokens, 4 rows" canary --write "$work/canary.json" --text "Hi there." "$2/models/dsv4-tiny"
grep -qF '"schema": "dsv4.canary/1"' "$work/canary.json"
expect 2 "are of --write" canary --text "Hi there." "$2/models/dsv4-tiny"
expect 2 "--tolerance = 0" canary --write "$work/canary.json" --tolerance 0 "$2/models/dsv4-tiny"
expect 3 "cannot be written" canary --write "$work/none/canary.json" "$2/models/dsv4-tiny"
mkdir "$work/other"
cp "$2"/models/dsv4-tiny/*.json "$work/other"
ln -s "$2"/models/dsv4-tiny/*.safetensors "$work/other"
sed -i 's/28\.07/27.01/; s/: "4eed/: "5eed/' "$work/other/dsv4_canary.json"
expect 1 "FAILED: the logits are not the recorded ones" canary "$work/other"
grep -q "recorded with checkpoint 5eed.*; this is 4eed" "$work/out"
rm "$work/other/dsv4_canary.json"
expect 3 "has no dsv4_canary.json" canary "$work/other"
# shellcheck disable=SC2086  # two paths
{
  expect 2 "--mode is needed" oracle $odd
  expect 2 "--mode = bf16" oracle --mode bf16 $odd
  expect 2 "--mode needs a value" oracle $odd --mode
  expect 2 "unknown option --mod" oracle --mod exact $odd
  expect 2 "takes no value" oracle --mode fp32 --layers=1 $odd
  expect 2 "--backend = gpu" oracle --mode published --backend gpu $odd
  expect 2 "the reference backend's" oracle --mode exact --backend cpu $odd
  expect 2 "the reference backend's" oracle --mode published --backend cpu --omit round_rope $odd
  expect 2 "--cache-format = fp4 is not auto" oracle --mode published --cache-format fp4 $odd
  expect 2 "nothing recorded has such rows" oracle --mode published --cache-format fp8_per_tensor $odd
  expect 2 "--omit = rounding" oracle --mode published --omit rounding $odd
  expect 2 "--prompt = 7 is not one of the case's 1, 3, 4, 5, 8, 127" \
    oracle --mode published --prompt 5 --prompt 7 $odd
  expect 2 "--prompt = five" oracle --mode published --prompt five $odd
  expect 2 "--threads = many" oracle --mode published --threads many $odd
  expect 3 "no logits of the case's prompts in mode exact" oracle --mode exact $odd
}
expect 2 "1 given" oracle --mode exact "$oracle/cases/odd.json"

# Files that are missing or malformed, each named.
expect 3 "$work/none.json" oracle --mode exact "$work/none.json" "$oracle/expected/odd.exact.safetensors"
expect 3 "none.safetensors" oracle --mode exact "$oracle/cases/odd.json" "$work/none.safetensors"
echo '{"name": "x"' >"$work/bad.json"
expect 3 "bad.json" oracle --mode exact "$work/bad.json" "$oracle/expected/odd.exact.safetensors"
sed 's/"seed": 12/"seed": "x"/' "$oracle/cases/odd.json" >"$work/seed.json"
expect 3 "seed" oracle --mode exact "$work/seed.json" "$oracle/expected/odd.exact.safetensors"
sed 's/"q_lora_rank": 256/"q_lora_rank": -1/' "$oracle/cases/odd.json" >"$work/rank.json"
expect 3 "q_lora_rank" oracle --mode exact "$work/rank.json" "$oracle/expected/odd.exact.safetensors"
head -c 100000 "$oracle/expected/odd.exact.safetensors" >"$work/cut.safetensors"
expect 3 "cut.safetensors" oracle --mode exact "$oracle/cases/odd.json" "$work/cut.safetensors"
expect 3 "elements; the case gives" oracle --mode exact "$oracle/cases/odd.json" \
  "$oracle/expected/pro.exact.safetensors"
expect 3 "gates.json" gates "$work"

# Expected hash: xxhsum -H2 of the one file.
printf '\065\0\0\0\0\0\0\0{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}x' \
  >"$work/model.safetensors"
hash=6ae535968e93e5c49067af095a26f4f0
expect 0 "full         $hash" hash "$work"
expect 0 "fingerprint" hash --expect $hash "$work"
expect 1 "FAILED" hash --expect 00000000000000000000000000000000 "$work"
expect 2 "not a hash" hash --expect 12 "$work"
expect 3 "no such folder" hash "$work/none"
rm "$work/model.safetensors"
expect 3 "none.json" tokenizer "$work/none.json" "$work/none.json"

# Of 13 prompts with 3 figures each, two.
expect 0 "exact: 6 figures, 100.0 % within 2e-5" oracle --mode exact --prompt 5 --prompt 8 \
  "$oracle/cases/odd.json" "$oracle/expected/odd.exact.safetensors"

# Other weights under the same prompts break the rule.
sed -e 's/"seed": 12/"seed": 15/' "$oracle/cases/odd.json" >"$work/other.json"
expect 1 "exact: 6 figures, 0.0 % within 2e-5" oracle --mode exact --prompt 5 --prompt 8 \
  "$work/other.json" "$oracle/expected/odd.exact.safetensors"

# A case outside the repository: another name, and its prompts are those it lists.
sed -e 's/"name": "odd"/"name": "mine"/' -e 's/"shards": 1/"shards": 2/' \
  -e '/"prompts"/,/]/c\ "prompts": [1, 5],' "$oracle/cases/odd.json" >"$work/mine.json"
expect 0 "exact: 6 figures" oracle --mode exact --keep "$work/kept" "$work/mine.json" \
  "$oracle/expected/odd.exact.safetensors"
[ -f "$work/kept/model-00002-of-00002.safetensors" ] || { echo "--keep kept nothing"; exit 1; }

# A tokenizer that differs from the recorded cases.
echo '[{"text": "a", "ids": [5], "decoded": "a"}]' >"$work/cases.json"
expect 1 "1 cases, 1 mismatches" tokenizer "$2/models/dsv4-tiny/tokenizer.json" "$work/cases.json"

# The chat format: one planted mismatch of each kind, and files that are not cases.
cases=$3/encoding_cases.json
first='{"encode": [{"messages": [{"role": "ROLE", "content": "a"}], "options": {"thinking_mode": "chat",
  "reasoning_effort": null, "drop_thinking": true, "add_default_bos_token": false}, RESULT}], "parse": []}'
# encode_case ROLE RESULT
encode_case() { echo "$first" | sed "s/ROLE/$1/; s/RESULT/$2/" >"$work/cases.json"; }
# parse_case TEXT MEMBER
parse_case() {
  echo "{\"encode\": [], \"parse\": [{\"text\": \"$1\", \"thinking_mode\": \"chat\", $2}]}" \
    >"$work/cases.json"
}
eos='<｜end▁of▁sentence｜>'
call='{"function": {"name": "f", "arguments": "{}"}}'
encode_case user '"prompt": "<｜User｜>a<｜Assistant｜><\/think>"'
expect 0 "encoding: 1 encode and 0 parse cases, 0 mismatches" encoding "$work/cases.json"
encode_case user '"prompt": "<｜User｜>a<｜Assistant｜><think>"'
expect 1 "encode[0]: the prompt differs at byte 31" encoding "$work/cases.json"
expect 1 "1 encode and 0 parse cases, 1 mismatches" encoding "$work/cases.json"
encode_case user '"error": "KeyError"'
expect 1 "encode[0]: is rendered, but was refused" encoding "$work/cases.json"
encode_case critic '"prompt": "a"'
expect 1 "encode[0]: is refused: messages[0]" encoding "$work/cases.json"
encode_case critic '"error": "NotImplementedError"'
expect 0 "0 mismatches" encoding "$work/cases.json"
# An effort that one of the encoders knows.
encode_case user '"prompt": "<｜User｜>a<｜Assistant｜><\/think>"'
sed -i 's/"reasoning_effort": null/"reasoning_effort": "low"/' "$work/cases.json"
expect 1 'is refused: the reasoning effort is "low"; expected high or max' encoding "$work/cases.json"
sed -i 's/^{/{"encoder": "0731", /' "$work/cases.json"
expect 0 "0 mismatches" encoding "$work/cases.json"
sed -i 's/"0731"/"0732"/' "$work/cases.json"
expect 3 "encoder = 0732 is not preview or 0731" encoding "$work/cases.json"
message='"message": {"role": "assistant", "content": "a", "reasoning_content": "", "tool_calls": []}'
parse_case "a$eos" "$message"
expect 0 "encoding: 0 encode and 1 parse cases, 0 mismatches" encoding "$work/cases.json"
parse_case "b$eos" "$message"
expect 1 'parse[0]: content differs at byte 0: "b", expected "a"' encoding "$work/cases.json"
parse_case "a$eos" "$(echo "$message" | sed "s/\[\]/[$call]/")"
expect 1 "parse[0]: has 0 tool calls, expected 1" encoding "$work/cases.json"
parse_case "a$eos" '"error": "AssertionError"'
expect 1 "parse[0]: is parsed, but was refused" encoding "$work/cases.json"
parse_case "a" "$message"
expect 1 "parse[0]: is refused: " encoding "$work/cases.json"
parse_case "a" '"error": "AssertionError"'
expect 0 "0 mismatches" encoding "$work/cases.json"
# One change to the recorded cases: the first prompt; then, in the last message that has it, each part.
plant() {
  sed "$1" "$cases" >"$work/planted.json"
  expect 1 "300 encode and 300 parse cases, 1 mismatches" encoding "$work/planted.json"
  grep -qF "$2" "$work/out" || { echo "$1 was reported as:"; cat "$work/out"; exit 1; }
}
plant 's/"prompt": "/&x/' "the prompt differs at byte 0"
plant 's/\(.*"name": "\)/\1x/' "].name differs at byte 0"
plant 's/\(.*"arguments": "{\)/\1 /' "].arguments differs at byte 1"
plant 's/\(.*"reasoning_content": "\)/\1x/' "reasoning_content differs at byte 0"
expect 3 "none.json" encoding "$work/none.json"
expect 3 "bad.json" encoding "$work/bad.json"
echo '{"encode": []}' >"$work/cases.json"
expect 3 "parse is missing" encoding "$work/cases.json"
echo '{"encode": [], "parse": []}' >"$work/cases.json"
expect 3 "hold no case" encoding "$work/cases.json"
encode_case user '"result": "a"'
expect 3 "encode[0] needs either prompt or error" encoding "$work/cases.json"
parse_case "a" '"message": "a"'
expect 3 "parse[0].message is not an object" encoding "$work/cases.json"
expect 2 "0 given" encoding

# Interrupted: exit 130 and the checkpoint is gone.
"$verify" oracle --mode exact "$oracle/cases/odd.json" "$oracle/expected/odd.exact.safetensors" \
  >"$work/out" 2>&1 &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  [ -z "$(ls "$TMPDIR")" ] || break
  sleep 0.05
done
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
[ "$status" -eq 130 ] || { echo "interrupted: exit $status, expected 130"; exit 1; }
[ -z "$(ls "$TMPDIR")" ] || { echo "left behind: $(ls "$TMPDIR")"; exit 1; }
