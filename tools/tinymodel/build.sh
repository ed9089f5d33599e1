#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes dsv4-tiny again on a machine with one CUDA GPU, torch, tokenizers and safetensors:
#   sh build.sh [minutes of training]
# Set NEW_TOKENIZER=1 to train the tokenizer as well instead of keeping the one in the directory.
set -e
cd "$(dirname "$0")"
MODEL=../../models/dsv4-tiny
WORK=$(mktemp -d)
[ -z "$NEW_TOKENIZER" ] || python3 tokenizer.py --out $MODEL
python3 test_model.py --model $MODEL
python3 train.py --model $MODEL --state $WORK/state --full $WORK/full.pt --minutes "${1:-8.6}" --log $WORK/train_log.jsonl
rm -f $MODEL/model-*.safetensors
python3 export.py --state $WORK/full.pt --out $MODEL
python3 evaluate.py --model $MODEL --gates-out $MODEL/gates.json
[ -z "$REFERENCE" ] || python3 check_reference.py --model $MODEL --reference "$REFERENCE"
echo "logs and state are in $WORK"
