#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: cli_bad_input_test.sh CHAT DAMAGE_MODEL MODEL_DIR
# What dsv4-chat says to wrong arguments, prompts and model folders: each its own message, the exit
# code of its class, and nothing on stdout.
set -eu
chat=$1 damage_model=$2 model=$3
. "$(dirname "$0")/../support/expect.sh"

# refused CODE TEXTS ARGUMENT...: the program ends with CODE, silent on stdout, and on stderr with one
# line that holds each of TEXTS (separated by |), after code 2 with a second one that points to --help.
refused() {
  code=$1
  printf '%s\n' "$2" | tr '|' '\n' >texts
  shift 2
  status=0
  timeout 60 "$chat" "$@" >out 2>err </dev/null || status=$?
  wrong=
  [ "$status" -eq "$code" ] || wrong=" exit code $status instead of $code;"
  [ ! -s out ] || wrong="$wrong text on stdout;"
  while read -r text; do
    grep -qF -- "$text" err || wrong="$wrong no \"$text\" in the message;"
  done <texts
  lines=1
  if [ "$code" -eq 2 ]; then
    lines=2
    grep -q -- --help err || wrong="$wrong no word of --help;"
  fi
  [ "$(wc -l <err)" -eq "$lines" ] || wrong="$wrong not $lines lines;"
  expect "dsv4-chat $*:$wrong" test -z "$wrong"
}

# damage EDIT...: ./damaged is the bundled model with this edit.
damage() {
  rm -rf damaged
  "$damage_model" "$model" damaged "$@"
}

# refused_model TEXTS: ./damaged is refused as a model.
refused_model() {
  refused 3 "$1" -m damaged -p Hi
}

first=model-00001-of-00002.safetensors
second=model-00002-of-00002.safetensors

# The command line.
refused 2 'unknown option --frobnicate' -m "$model" --frobnicate -p Hi
refused 2 'unknown option -x' -m "$model" -x
refused 2 'unknown option --tem: did you mean --temp?' -m "$model" --tem=1 -p Hi
refused 2 'unknown option --max: did you mean --max-tokens?' -m "$model" --max=1 -p Hi
refused 2 'unexpected argument "Hello"|-p' -m "$model" Hello
refused 2 'no model|-m' -p Hi
refused 2 '-m|folder' -m '' -p Hi
refused 2 '-p needs a value' -m "$model" -p
refused 2 '--no-stats takes no value|"yes"' -m "$model" --no-stats=yes -p Hi
refused 2 '--temp|"hot"|0 or more' -m "$model" --temp hot -p Hi
refused 2 '--temp|"-1"' -m "$model" --temp -1 -p Hi
refused 2 '--temp|"nan"' -m "$model" --temp nan -p Hi
refused 2 '--top-k|"1.5"' -m "$model" --top-k 1.5 -p Hi
refused 2 '--top-p|"0"|above 0 and up to 1' -m "$model" --top-p 0 -p Hi
refused 2 '--min-p|"2"|0 to 1' -m "$model" --min-p 2 -p Hi
refused 2 '--seed|"-5"' -m "$model" --seed=-5 -p Hi
refused 2 '-n|"0"|from 1' -m "$model" -n 0 -p Hi
refused 2 '-n|"9999999999999999999"' -m "$model" -n9999999999999999999 -p Hi
refused 2 '--threads|"many"' -m "$model" --threads many -p Hi
refused 2 '--backend|"gpu"|cpu' -m "$model" --backend gpu -p Hi
refused 2 '--draft|"8"|from 0 to 7' -m "$model" --draft 8 -p Hi
refused 2 '--think-budget|"0"|from 1' -m "$model" --think-budget 0 -p Hi
refused 2 '--think|"medium"|off, low, high or max' -m "$model" --think=medium -p Hi
refused 2 '--chat-encoder|"0732"|auto, preview or 0731' -m "$model" --chat-encoder 0732 -p Hi
refused 2 '--raw|--chat-encoder cannot be combined' -m "$model" --raw --chat-encoder 0731 -p Hi
refused 2 '--color|"green"' -m "$model" --color green -p Hi
refused 2 'settings[0]|"numerics=fp64"|published, fp32, exact' -m "$model" --numerics fp64 -p Hi
refused 2 'settings[0]|"cache_format=fp4"|packed' -m "$model" --cache-format fp4 -p Hi
refused 2 '--presence-penalty|"3"|-2 to 2' -m "$model" --presence-penalty 3 -p Hi
refused 2 '--stop|""' -m "$model" --stop '' -p Hi
refused 2 '--devices|"-1"' -m "$model" --devices=-1 -p Hi
refused 2 '--devices|""' -m "$model" --devices 0, -p Hi
refused 3 'numerics|cpu' -m "$model" --backend cpu --numerics exact -p Hi
refused 3 'cache_format' -m "$model" --cache-format f32 -p Hi
refused 3 'tuning_dir = tables|backend cpu' -m "$model" --backend cpu --tuning tables -p Hi
refused 2 'device cpu:7' -m "$model" --devices 7 -p Hi
refused 2 '--device-weights|"x"' -m "$model" --device-weights x -p Hi
refused 2 'devices names 0 twice' -m "$model" --devices 0,0 -p Hi
refused 2 '--load|--tools cannot be combined' -m "$model" --load file --tools file -p Hi
refused 2 '--raw|-s cannot be combined' -m "$model" --raw -s system -p Hi
refused 2 '--raw|--think cannot be combined' -m "$model" --raw --think -p Hi
refused 2 'nowhere|No such file' -m "$model" -f nowhere
refused 2 'nowhere.messages.json|No such file' -m "$model" --load nowhere -p Hi
refused 3 'nowhere' -m nowhere --inspect
refused 3 'nowhere' -m nowhere --plan
refused 2 'context_tokens|16385' -m "$model" -c 16385 --plan
refused 2 'context_tokens|16385|16384' -m "$model" -c 16385 -p Hi

# Grammars.
refused 2 'nowhere.json|No such file' -m "$model" --schema nowhere.json -p Hi
echo '{"properties": {"a": {"minLength": -1}}}' >schema.json
refused 2 '--schema schema.json: schema#/properties/a/minLength' -m "$model" --schema schema.json -p Hi
refused 2 '--regex: |byte 2' -m "$model" --regex '(' -p Hi
refused 2 'exclude each other' -m "$model" --regex a --schema schema.json -p Hi

# The tools.
refused 2 'nowhere.json|No such file' -m "$model" --tools nowhere.json -p Hi
: >tools.json
refused 2 'tools.json|empty' -m "$model" --tools tools.json -p Hi
echo '[{"type": "function"' >tools.json
refused 2 '--tools tools.json: line 2' -m "$model" --tools tools.json -p Hi
echo '{"type": "function"}' >tools.json
refused 2 '--tools tools.json is of kind object' -m "$model" --tools tools.json -p Hi
echo '[], {"role": "user"}' >tools.json
refused 2 '--tools tools.json: line 1' -m "$model" --tools tools.json -p Hi

# The prompt.
refused 2 'prompt is empty' -m "$model" -p ''
refused 2 'prompt is empty' -m "$model"
refused 2 'UTF-8' -m "$model" -p "$(printf 'a\377')"
refused 2 'system message is not UTF-8' -m "$model" -p Hi -s "$(printf 'a\377')"
long=$(awk 'BEGIN { for (i = 0; i < 400; i++) printf "word " }')
refused 1 'prompt has|context holds 64' -m "$model" -c 64 -p "$long"

# The model folder.
refused 3 'nowhere' -m nowhere -p Hi
mkdir empty
refused 3 'empty/config.json' -m empty -p Hi
damage truncate $second 5000000
refused_model "$second|truncated"
damage truncate $first 4
refused_model "$first|truncated"
damage truncate $first 0
refused_model "$first"
damage remove $second
refused_model "$second|no such file"
damage remove model.safetensors.index.json
refused_model 'model.safetensors.index.json'
damage text model.safetensors.index.json '{' '['
refused_model 'model.safetensors.index.json|JSON'
damage text model.safetensors.index.json '"layers.0.hc_attn_fn": ' '"layers.0.hc_attn_fu": '
refused_model 'layers.0.hc_attn_fu|lacks'
damage header $first '"layers.2.attn.wkv.weight"' '"layers.2.attn.wku.weight"'
refused_model 'layers.2.attn.wkv.weight'
mv damaged renamed
"$damage_model" renamed damaged text model.safetensors.index.json \
  '"layers.2.attn.wkv.weight"' '"layers.2.attn.wku.weight"'
refused_model 'tensor layers.2.attn.wkv.weight is missing'
damage header $first '"layers.0.hc_attn_fn":{"dtype":"F32"' '"layers.0.hc_attn_fn":{"dtype":"I32"'
refused_model 'layers.0.hc_attn_fn|I32|F32'
damage header $first '"layers.0.hc_attn_fn":{"dtype":"F32"' '"layers.0.hc_attn_fn":{"dtype":"F33"'
refused_model 'layers.0.hc_attn_fn|F33'
damage header $first '"layers.0.hc_attn_fn":{"dtype":"F32","shape":[24,1024]' \
  '"layers.0.hc_attn_fn":{"dtype":"F32","shape":[1024,24]'
refused_model 'layers.0.hc_attn_fn|[1024, 24]|[24, 1024]'
damage header $first '"layers.0.hc_attn_fn":{"dtype":"F32","shape":[24,1024]' \
  '"layers.0.hc_attn_fn":{"dtype":"F32","shape":[-24,1024]'
refused_model 'layers.0.hc_attn_fn|shape'
damage header $first '[65536,131072]' '[0,65536]'
refused_model 'layers.1.ffn.gate.tid2eid|overlap'
damage header $first '[65536,131072]' '[65536,131073]'
refused_model 'layers.1.ffn.gate.tid2eid|data_offsets'
damage header $first '{' '['
refused_model "$first|JSON"
damage byte $first layers.0.attn.wq_a.scale 1 0xff
refused_model 'layers.0.attn.wq_a.scale|255|not a number'
damage byte $first layers.0.attn.wq_a.weight 7 0x7f
refused_model 'layers.0.attn.wq_a.weight|not a finite number'
damage byte $first layers.0.ffn.gate.tid2eid 0 99
refused_model 'layers.0.ffn.gate.tid2eid|99'

# The configuration.
damage remove config.json
refused_model 'config.json'
damage truncate config.json 100
refused_model 'config.json|without its end'
damage text config.json '"hidden_size": 256' '"hidden_size": -256'
refused_model 'config.json|hidden_size|-256'
damage text config.json '"hidden_size": 256' '"hidden_size": 1e300'
refused_model 'hidden_size|1e300'
damage text config.json '"hidden_size": 256' '"hidden_size": 512'
refused_model '512'
damage text config.json '"vocab_size": 2048' '"vocab_size": 9223372036854775807'
refused_model 'vocab_size|9223372036854775807'
damage text config.json '"num_hidden_layers": 6' '"num_hidden_layers": 1000000000'
refused_model 'num_hidden_layers|1000000000'
damage text config.json '"head_dim": 512' '"head_dim": 128'
refused_model 'head_dim|128|512'
damage text config.json '"n_routed_experts": 16' '"n_routed_experts": "many"'
refused_model 'n_routed_experts|many'
damage text config.json '"hc_mult": 4,' ''
refused_model 'hc_mult'
damage text config.json '"model_type": "deepseek_v4"' '"model_type": "llama"'
refused_model 'model_type|llama'
damage text generation_config.json '"temperature": 1.0' '"temperature": -1'
refused_model 'generation_config.json|temperature'

# The tokenizer.
damage remove tokenizer.json
refused_model 'damaged|tokenizer.json'
damage text tokenizer.json ': 2000,' ': 5000,'
refused_model 'tokenizer.json|5000|2048'
damage truncate tokenizer.json 3000
refused_model 'tokenizer.json|without its end'
damage text tokenizer.json '"BPE"' '"Unigram"'
refused_model 'tokenizer.json|Unigram'

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
