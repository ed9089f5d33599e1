#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: clients.sh SERVER MODEL [FOLDER]
# Installs clients of OpenAI's and Anthropic's APIs in a virtual environment in FOLDER (default: a
# temporary one), starts the program SERVER on the folder MODEL, and runs clients.py. Exits with 77,
# and says why, where there is no Python, no venv, or no network.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
server=$1 model=$2
skip() {
  echo "skipped: $*"
  exit 77
}
command -v python3 >/dev/null || skip "no python3"
folder=${3:-}
if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
[ -x "$folder/bin/python" ] || python3 -m venv "$folder" >/dev/null 2>&1 || skip "python3 has no venv"
"$folder/bin/pip" --quiet --disable-pip-version-check install \
  openai anthropic litellm instructor 'pydantic-ai-slim[openai]' openai-agents langgraph langchain-openai \
  >"$folder/pip.log" 2>&1 || skip "the clients cannot be installed: $(tail -n 1 "$folder/pip.log")"
mkfifo "$folder/line.$$"
"$server" --model "$model" --port 0 >"$folder/line.$$" 2>"$folder/server.log" &
pid=$!
trap 'kill "$pid" 2>/dev/null; rm -f "$folder/line.$$"; [ -n "${3:-}" ] || rm -rf "$folder"' EXIT
read -r line <"$folder/line.$$"
"$folder/bin/python" "$here/clients.py" "${line##* at }"
