# SPDX-License-Identifier: Apache-2.0
# Sourced by rust_test.sh and go_test.sh, which set source, build, libraries and cc.

skip() {
  echo "skipped: $1"
  exit 77
}

# write_listing: the C compiler's listing of the ABI, to DSV4_ABI_LISTING.
write_listing() {
  sh "$source/tests/bindings/generate.sh" "$build/generated"
  "$cc" -std=c99 -I"$source/include" "$build/generated/listing.c" -o "$build/listing" \
    -L"$libraries" -ldsv4
  export DSV4_ABI_LISTING="$build/listing.txt"
  "$build/listing" >"$DSV4_ABI_LISTING"
}

# expect_chat PROGRAM: what a chat example answers, where, and its exit codes.
expect_chat() {
  model=$source/models/dsv4-tiny
  answer='The capital of France is Paris.'
  "$1" "$model" 'What is the capital of France?' >"$build/out" 2>"$build/err" </dev/null
  [ "$(cat "$build/out")" = "$answer" ] || { cat "$build/out" "$build/err"; echo "FAILED: one answer"; exit 1; }
  printf '%s\n' 'What is the capital of France?' 'What is the capital of Italy?' |
    "$1" "$model" >"$build/out" 2>"$build/err"
  printf '%s\n' "$answer" 'The capital of Italy is Rome.' | diff - "$build/out" ||
    { echo "FAILED: a conversation"; exit 1; }
  status=0
  "$1" "$build/nowhere" question >"$build/out" 2>"$build/err" || status=$?
  [ "$status" -eq 1 ] && [ ! -s "$build/out" ] && grep -q 'NOT_FOUND: .*nowhere' "$build/err" ||
    { cat "$build/err"; echo "FAILED: a missing model is named"; exit 1; }
  status=0
  "$1" 2>"$build/err" || status=$?
  [ "$status" -eq 2 ] && grep -q '^usage: ' "$build/err" || { echo "FAILED: usage"; exit 1; }
}

# files_of FOLDER: to compare before and after: nothing is written there.
files_of() { (cd "$1" && find . | sort); }
