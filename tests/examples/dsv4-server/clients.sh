#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: clients.sh SERVER MODEL [FOLDER]
# Installs clients of OpenAI's and Anthropic's APIs in virtual environments in FOLDER (default: a
# temporary one), starts the program SERVER on the folder MODEL, and runs clients.py, programs.py for
# each program, and schemas.py. What cannot be installed is skipped with the reason. The exit code is
# 1 if a client fails, and 77 where there is no Python, no venv, or nothing can be installed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
server=$1 model=$2
skip() {
  echo "skipped: $*"
  exit 77
}
command -v python3 >/dev/null || skip "no python3"
folder=${3:-}
pid=
temporary=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -f "$folder/line.$$"; [ -z "$temporary" ] || rm -rf "$temporary"' EXIT
if [ -z "$folder" ]; then
  temporary=$(mktemp -d)
  folder=$temporary
fi
mkdir -p "$folder"

# install NAME PACKAGE...: into the environment $folder/NAME. Fails, and says why, if that is not possible.
install() {
  name=$1
  shift
  [ -x "$folder/$name/bin/python" ] || python3 -m venv "$folder/$name" >/dev/null 2>&1 || skip "python3 has no venv"
  "$folder/$name/bin/pip" --quiet --disable-pip-version-check install "$@" >"$folder/$name.log" 2>&1 && return
  echo "$name: skipped: cannot be installed: $(tail -n 1 "$folder/$name.log")"
  return 1
}

mkfifo "$folder/line.$$"
"$server" --model "$model" --port 0 --context 4096 >"$folder/line.$$" 2>"$folder/server.log" &
pid=$!
read -r line <"$folder/line.$$"
url=${line##* at }

status=0 ran=0
if install clients openai anthropic litellm instructor 'pydantic-ai-slim[openai]' openai-agents langgraph \
  langchain-openai mcp; then
  ran=1
  "$folder/clients/bin/python" "$here/clients.py" "$url" || status=1
fi
for program in llm 'lm_eval[api]' llama-benchy guidellm aider-chat; do
  name=${program%%\[*}
  install "$name" "$program" || continue
  ran=1
  "$folder/$name/bin/python" "$here/programs.py" "$url" "$model" "$name" || status=1
done
if install jsonschema jsonschema; then
  ran=1
  "$folder/jsonschema/bin/python" "$here/schemas.py" "$url" "$here/../../lib/grammar/tool_schemas.json" || status=1
fi
[ "$ran" = 1 ] || skip "nothing can be installed"
exit "$status"
