#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: verify_command_line_test.sh DSV4_VERIFY SOURCE_DIR
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

odd="$oracle/cases/odd.json $oracle/expected/odd.published.safetensors"
expect 0 "usage: dsv4-verify" --help
expect 0 "dsv4-verify " --version
expect 2 "a command is needed"
expect 2 "unknown command orakel" orakel
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
  expect 2 "--omit = rounding" oracle --mode published --omit rounding $odd
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
expect 3 "none.json" tokenizer "$work/none.json" "$work/none.json"

# Other weights under the same prompts break the rule.
sed -e 's/"seed": 12/"seed": 15/' "$oracle/cases/odd.json" >"$work/other.json"
expect 1 "exact: 39 figures, 0.0 % within 2e-5" oracle --mode exact "$work/other.json" \
  "$oracle/expected/odd.exact.safetensors"

# A case outside the repository: another name, and its prompts are those it lists.
sed -e 's/"name": "odd"/"name": "mine"/' -e 's/"shards": 1/"shards": 2/' \
  -e '/"prompts"/,/]/c\ "prompts": [1, 5],' "$oracle/cases/odd.json" >"$work/mine.json"
expect 0 "exact: 6 figures" oracle --mode exact --keep "$work/kept" "$work/mine.json" \
  "$oracle/expected/odd.exact.safetensors"
[ -f "$work/kept/model-00002-of-00002.safetensors" ] || { echo "--keep kept nothing"; exit 1; }

# A tokenizer that differs from the recorded cases.
echo '[{"text": "a", "ids": [5], "decoded": "a"}]' >"$work/cases.json"
expect 1 "1 cases, 1 mismatches" tokenizer "$2/models/dsv4-tiny/tokenizer.json" "$work/cases.json"

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
