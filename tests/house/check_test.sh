#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: check_test.sh SOURCE_DIR
# ./check, .ci/run and tools/build.sh in a project of one source and a handful of tests: what is run,
# the closing line, and that a failure is an exit code.
set -eu
source=$1
. "$(dirname "$0")/../support/expect.sh"

run() {
  status=0
  "$@" >log 2>&1 </dev/null || status=$?
}
closing() { tail -n 1 log; }

mkdir tools
cp "$source/tools/build.sh" tools
# All is there but clang.
printf '#!/bin/sh\n' >tools/install_dependencies.sh
printf '#!/bin/sh\nexit 1\n' >tools/has_clang.sh
chmod +x tools/install_dependencies.sh tools/has_clang.sh
cp -r "$source/check" "$source/CMakePresets.json" "$source/.ci" .
# A stand-in for fuzzing, which reports as told.
echo 77 >fuzz_status
cat >tools/fuzz.sh <<'FUZZ'
#!/bin/sh
echo "fuzzing for $1 s"
exit "$(cat fuzz_status)"
FUZZ
chmod +x tools/fuzz.sh
echo 'int main(void) { return 0; }' >main.c
cat >CMakeLists.txt <<'PROJECT'
cmake_minimum_required(VERSION 3.25)
project(house_check_test C)
enable_testing()
add_executable(program main.c)
add_test(NAME plain COMMAND sh -c "echo information: of the plain test; ./program")
add_test(NAME wavering COMMAND sh -c "exit ${WAVERING}")
add_test(NAME absent COMMAND sh -c "echo skipped: no such file; exit 77")
add_test(NAME lengthy COMMAND program)
add_test(NAME lengthiest COMMAND program)
set_tests_properties(wavering absent PROPERTIES LABELS unit)
set_tests_properties(plain PROPERTIES LABELS "unit;threads")
add_custom_target(thread_tests DEPENDS program)
set_tests_properties(absent PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(lengthy PROPERTIES LABELS long)
set_tests_properties(lengthiest PROPERTIES LABELS longest)
PROJECT
sed -i 's/"CMAKE_BUILD_TYPE": /"WAVERING": "0", &/' CMakePresets.json

run ./check
expect 'success' test "$status" -eq 0
expect 'the closing line' test "$(closing)" = '100% tests passed, 0 tests failed out of 3'
expect 'no long test' sh -c '! grep -q lengthy log'
expect 'no fuzzing' sh -c '! grep -q fuzzing log'
expect 'the reason of a skip' grep -q '^skipped: no such file' log
expect 'information of a test that passes' grep -q '^information: of the plain test' log

run sh .ci/run
expect 'success of .ci/run' test "$status" -eq 0
expect 'short, long and sanitizer tests are counted' \
  test "$(closing)" = '100% tests passed, 0 tests failed out of 8'
expect 'the long test ran' grep -q 'lengthy .* Passed' log
expect 'sanitizer builds were made' test -x build-asan/program -a -x build-tsan/program
expect 'none of the longest tests' sh -c '! grep -q lengthiest log'
run ./check --all
expect 'all tests are counted' test "$(closing)" = '100% tests passed, 0 tests failed out of 9'
expect 'the longest test ran' grep -q 'lengthiest .* Passed' log
expect 'fuzzing takes its time' grep -qxF 'fuzzing for 15 s' log

echo 0 >fuzz_status
run ./check --full
expect 'success with fuzzing' test "$status" -eq 0
expect 'fuzzing counts as a test' test "$(closing)" = '100% tests passed, 0 tests failed out of 9'
echo 1 >fuzz_status
run ./check --full
expect 'a finding is an exit code' test "$status" -eq 1
expect 'the closing line counts a finding' test "$(closing)" = '88% tests passed, 1 tests failed out of 9'
echo 77 >fuzz_status

# clang compiles the sanitized builds once it is there, and no other. Its stand-in does not know the options of clang
# that ccache adds.
export CCACHE_DISABLE=1
compiler_of() { sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=.*\///p' "$1/CMakeCache.txt"; }
expect 'without clang the same compiler' test "$(compiler_of build-asan)" = "$(compiler_of build)"
mkdir clang
printf '#!/bin/sh\nexec cc "$@"\n' >clang/clang-14
printf '#!/bin/sh\n' >tools/has_clang.sh
chmod +x clang/clang-14
PATH=$place/clang:$PATH
for preset in release asan tsan; do run tools/build.sh $preset; done
expect 'clang compiles build-asan' test "$(compiler_of build-asan)" = clang-14
expect 'with fuzz targets' grep -q '^DSV4_FUZZ:[A-Z]*=ON$' build-asan/CMakeCache.txt
expect 'clang compiles build-tsan' test "$(compiler_of build-tsan)" = clang-14
expect 'without fuzz targets' sh -c '! grep -q "^DSV4_FUZZ:" build-tsan/CMakeCache.txt'
expect 'clang does not compile build' test "$(compiler_of build)" != clang-14
run tools/build.sh asan
expect 'no second configuration' test "$status" -eq 0 -a ! -s log
printf '#!/bin/sh\nexit 1\n' >tools/has_clang.sh
run tools/build.sh asan
expect 'the first compiler where clang is gone' test "$(compiler_of build-asan)" = "$(compiler_of build)"

cmake -DWAVERING=1 build >log
run ./check --full
expect 'a failing test is an exit code' test "$status" -ne 0
expect 'the closing line counts it' test "$(closing)" = '66% tests passed, 1 tests failed out of 3'

echo 'int main(void) { return }' >main.c
run ./check
expect 'a failing build is an exit code' test "$status" -ne 0
expect 'no tests after a failing build' sh -c '! grep -q "tests passed" log'

run ./check --fast
expect 'an unknown option is refused' test "$status" -eq 2

# A build folder that points at another tree, as in a copy of a built one.
echo 'int main(void) { return 0; }' >main.c
mkdir copy
cp -r tools check fuzz_status CMakePresets.json CMakeLists.txt main.c build copy
rm main.c
run copy/check
expect 'the copy builds itself' test "$status" -eq 0

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
