#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: readme_test.sh SOURCE_DIR BUILD_DIR PLACE
# A newcomer's path: every fenced snippet of README.md, docs/embed.md and docs/status.md, in their order. "```LANGUAGE FILE" is written to
# that file, "```sh" is run in the root of the project; where it asks the model a question, the answer
# names Paris.
#
# The root is a copy by links whose `build` is this build. ./check, which runs this test, and the build
# that ./quickstart begins with are left out.
set -eu
source=$1 build=$2 place=$3
for tool in pkg-config cargo rustc go; do
  command -v $tool >/dev/null ||
    { echo "skipped: $tool is not installed (apt-get install pkg-config cargo rustc golang-go)"; exit 77; }
done
root=$place/root
rm -rf "$place"
mkdir -p "$root/tools" "$place/home" "$place/snippets"
for entry in "$source"/* "$source"/tools/*; do
  name=${entry#"$source"/}
  case $name in
    build* | quickstart | check | tools | tools/build.sh) ;;
    *) ln -s "$entry" "$root/$name" ;;
  esac
done
ln -s "$build" "$root/build"
cp "$source/quickstart" "$root"
for stand_in in check tools/build.sh; do
  [ -x "$source/$stand_in" ] || { echo "FAILED: there is no $stand_in"; exit 1; }
  printf '#!/bin/sh\n' >"$root/$stand_in"
  chmod +x "$root/$stand_in"
done

# Tools that find themselves through the home folder keep theirs.
export RUSTUP_HOME="${RUSTUP_HOME-$HOME/.rustup}"
export HOME="$place/home" CARGO_HOME="$place/home/cargo" CARGO_NET_OFFLINE=true GOPROXY=off
export GOCACHE="$build/tests/house/go-cache"

# snippets/NN.sh to run, and snippets/NN.file to be written to the path in its first line.
awk -v place="$place/snippets" '
  /^ *```/ && !inside {
    inside = 1
    words = split($0, word, " ")
    if (word[1] == "```sh" && words == 1) out = sprintf("%s/%02d.sh", place, ++count)
    else if (words == 2) {
      out = sprintf("%s/%02d.file", place, ++count)
      print word[2] >out
    } else { print FILENAME ":" FNR ": a snippet of no language or no file: " $0; bad = 1; exit 1 }
    next
  }
  /^ *```/ { inside = 0; close(out); next }
  inside { print >out }
  END { exit bad || inside || count == 0 }' "$source/README.md" "$source/docs/embed.md" "$source/docs/status.md"

cd "$root"
for snippet in "$place"/snippets/*; do
  case $snippet in
    *.file)
      file=$(head -n 1 "$snippet")
      mkdir -p "$(dirname "$file")"
      tail -n +2 "$snippet" >"$file"
      continue
      ;;
  esac
  status=0
  sh -eu "$snippet" >"$place/out" 2>"$place/err" </dev/null || status=$?
  asked=$(grep -c 'the capital of France' "$snippet" || true)
  answered=$(grep -c 'Paris' "$place/out" || true)
  if [ "$status" -ne 0 ] || [ "$asked" -ne "$answered" ]; then
    echo "FAILED (exit code $status; $asked questions, $answered answers):"
    cat "$snippet" "$place/out" "$place/err"
    exit 1
  fi
done
