#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: chat_device_lost_test.sh CHAT MODEL_DIR
# dsv4-chat on a device that is lost on command (tests/support/failing_device.cc): the answer
# continues where it was, once.
set -eu
chat=$1 model=$2
. "$(dirname "$0")/../support/expect.sh"

run() {  # LOST_STEPS FAILING_RESUMES ARGUMENT...
  lost=$1 resumes=$2
  shift 2
  status=0
  DSV4_TEST_LOST_STEPS=$lost DSV4_TEST_FAILING_RESUMES=$resumes \
    timeout 60 "$chat" -m "$model" --no-stats "$@" >out 2>err </dev/null || status=$?
}

for form in "-p Tell_a_story. --seed 5 --temp 1 -n 12" "-p Tell_a_story. --seed 5 --temp 1 -n 12 --draft 3" \
  "-p Tell_a_story. --regex [a-z]{9,12} --seed 5 --temp 1" "-p Tell_a_story. --json --seed 5 --temp 1 -n 8" \
  "--raw -p one_two --seed 5 --temp 1 -n 8"; do
  # shellcheck disable=SC2086
  run '' '' $form
  expect "$form: an answer" test -s out
  # What took how long differs.
  sed 's/"[a-z_]*_\(seconds\|per_second\)":[^,}]*//g' out >whole
  # shellcheck disable=SC2086
  run 3 '' $form
  sed -i 's/"[a-z_]*_\(seconds\|per_second\)":[^,}]*//g' out
  expect "$form: the same answer" cmp -s out whole
  expect "$form: exit code 0" test "$status" -eq 0
  expect "$form: said so" grep -q 'the device was lost.*; the model is loaded again' err
done

run 3,5 '' -p 'Tell a story.' -n 12
expect 'exit code 5 when the device is lost twice' test "$status" -eq 5
run 3 1 -p 'Tell a story.' -n 12
expect 'exit code 5 without the device' test "$status" -eq 5
expect 'said so' grep -q 'could not be loaded again' err

exit $((failures > 0))
