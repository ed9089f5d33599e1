#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: cli_models_test.sh CHAT MODEL_DIR
# dsv4-chat finds models by folder, file and name in the hub's cache, and lists them.
set -eu
chat=$1 model=$(cd "$2" && pwd)
. "$(dirname "$0")/../support/expect.sh"

run() {  # ARGUMENT...
  status=0
  timeout 60 "$chat" "$@" >out 2>err </dev/null || status=$?
}
question='What is the capital of France?'

# As the hub lays it out: links to blobs. The older snapshot is the complete one.
cache=$place/home/.cache/huggingface/hub
snapshots=$cache/models--acme--tiny.model/snapshots
mkdir -p "$snapshots/older" "$snapshots/newer"
for file in "$model"/*; do ln -s "$file" "$snapshots/older/"; done
cp -r "$snapshots/older/." "$snapshots/newer"
rm "$snapshots"/newer/*.safetensors
ln -s "$place/nowhere" "$snapshots/newer/model.safetensors"
touch -d '2020-01-01' "$snapshots/older"
unset HF_HOME HF_HUB_CACHE XDG_CACHE_HOME
HOME=$place/home
export HOME

run -m acme/tiny.model -p "$question" --no-stats
expect 'a model by its name' grep -qx 'The capital of France is Paris.' out
run -m "$cache/models--acme--tiny.model/" -p "$question" --no-stats
expect 'a folder of the cache' grep -qx 'The capital of France is Paris.' out
mv "$place/home/.cache/huggingface" "$place/elsewhere"
HF_HUB_CACHE=$place/elsewhere/hub run -m acme/tiny.model --plan
expect 'HF_HUB_CACHE' test "$status" -eq 0
HF_HOME=$place/elsewhere run -m acme/tiny.model --plan
expect 'HF_HOME' test "$status" -eq 0
XDG_CACHE_HOME=$place/xdg run -m acme/tiny.model --plan
expect 'a cache without it' test "$status" -eq 3
mkdir xdg
mv elsewhere xdg/huggingface
XDG_CACHE_HOME=$place/xdg run -m acme/tiny.model --plan
expect 'XDG_CACHE_HOME' test "$status" -eq 0
mv xdg/huggingface home/.cache/huggingface

# What is missing, and how to get it.
run -m deepseek-ai/DeepSeek-V4-Flash --plan
expect 'a model that is not there' test "$status" -eq 3
expect 'the command to download it' \
  grep -qF "no model of that name is in the hub's cache ($cache). To download it: hf download deepseek-ai/DeepSeek-V4-Flash (159.6 GB)" err
rm -r "$snapshots/older"
run -m acme/tiny.model --plan
expect 'an unfinished download' test "$status" -eq 3
expect 'what it lacks' \
  grep -q 'files are missing, such as .*\.safetensors\. To download what is missing: hf download acme/tiny.model' err
run -m ./acme/tiny.model --plan
expect 'a path is not a name' grep -qF './acme/tiny.model/config.json: no such file' err

# The list.
run --list-models
expect 'the unfinished download in the list' grep -q '^acme/tiny.model  .*does not run: .* missing' out
rm -r "$snapshots/newer"
mkdir "$snapshots/whole" "$cache/models--other--family" "$cache/models--other--family/snapshots" \
  "$cache/models--other--family/snapshots/1"
for file in "$model"/*; do ln -s "$file" "$snapshots/whole/"; done
echo '{"model_type": "llama"}' >"$cache/models--other--family/snapshots/1/config.json"
run --list-models --backend cpu
expect 'a model with its size, format and place' \
  grep -qE '^acme/tiny.model  [0-9.]+ MB  fp8\+fp4  CPU, host memory [0-9.]+ MB: about [0-9]+ tokens a second \(predicted\)$' out
expect 'others are counted' grep -qx '1 models of other families' out
run --list-models --json --backend cpu
expect 'the list as JSON' grep -qE '^\{"event": "models", "models": \[\{"name": "acme/tiny.model", .*"runs": true, .*\]\}$' out
rm -r "$cache"
run --list-models
expect 'an empty cache' grep -qF "($cache); to download one: hf download deepseek-ai/" out

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
