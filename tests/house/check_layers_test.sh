#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: check_layers_test.sh SOURCE_DIR
# The checker of the house rules finds each breach planted in a small clean tree, at its file and
# line, and nothing in the clean tree nor in the ways of writing that only look like a breach.
set -eu
check=$1/tools/check_layers.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

spdx='// SPDX-License-Identifier: Apache-2.0'

# write FILE LINE...: a source file whose first line is the licence.
write() {
  file=$tree/$1
  shift
  mkdir -p "$(dirname "$file")"
  { echo "$spdx"; for line; do echo "$line"; done; } >"$file"
}

clean_tree() {
  rm -rf "$tree/"*
  write lib/base/error.h '#include "absl/status/status.h"'
  write lib/tensor/dtype.h '#include "lib/base/error.h"'
  write lib/io/json.h '#include "lib/base/error.h"'
  write lib/kv/block_pool.h '#include "kernels/op/kv_layout.h"'
  write lib/model/block.cc '#include "kernels/op/linear.h"' '#include "kernels/registry/dispatch.h"'
  write lib/engine/engine.h '#include "lib/kv/block_pool.h"'
  write lib/engine/engine.cc '#include "kernels/builtin.h"' '#include "lib/engine/engine.h"'
  write kernels/op/kv_layout.h '#include <cstdint>'
  write kernels/op/linear.h '#include "lib/tensor/dtype.h"'
  write kernels/registry/dispatch.h '#include "kernels/op/linear.h"'
  write kernels/registry/registry.h
  write kernels/reference/linear.cc '#include "kernels/registry/registry.h"'
  write kernels/cpu/linear.cc '#include "hwy/highway.h"' '#include HWY_TARGET_INCLUDE'
  write kernels/builtin.h '#include "kernels/registry/registry.h"'
  write include/dsv4/abi.h '#include <stdint.h>'
  write include/dsv4/dsv4.h '#include <dsv4/abi.h>'
  write capi/session.cc '#include <dsv4/dsv4.h>' '#include "lib/engine/engine.h"'
  write examples/chat/main.cc '#include <dsv4/dsv4.h>' '#include <vector>' '#include <sys/stat.h>' \
    '#include "examples/chat/options.h"' 'int main() { printf("x"); }'
  write examples/chat/options.h '#include <string>'
  write tests/capi/session_test.c '#include <dsv4/dsv4.h>' '#include <stdio.h>'
  write tests/lib/kv_test.cc '#include "lib/kv/block_pool.h"' '#include "kernels/builtin.h"'
}

expect_clean() {
  if ! "$check" "$tree" >"$tree/out" 2>&1; then
    echo "FAILED: findings without a breach ($1):"
    cat "$tree/out"
    failures=$((failures + 1))
  fi
}

# planted FILE:LINE FRAGMENT: the tree has one breach there, which the finding names.
planted() {
  if "$check" "$tree" >"$tree/out" 2>&1; then
    echo "FAILED: not found: $1 ($2)"
    failures=$((failures + 1))
  elif ! grep -F -- "$1: " "$tree/out" | grep -qF -- "$2" || ! grep -q '^1 findings' "$tree/out"; then
    echo "FAILED: expected one finding $1: ...$2..., got:"
    cat "$tree/out"
    failures=$((failures + 1))
  fi
  clean_tree
}

# breach FILE LINE FRAGMENT: a file of this line alone is the one breach.
breach() {
  write "$1" "$2"
  planted "$1:2" "$3"
}

clean_tree
expect_clean 'clean tree'

# Look-alikes.
write lib/base/error.h '// calls abort() and printf(' '/* exit(1);' '   getenv("A") */' \
  'const char* s = "exit(1) std::cout";' 'x.exit(); p->signal(3); my_exit(1); snprintf(b, 4, "");'
expect_clean 'look-alikes'
clean_tree

# What differs by system has files of its own; there it may.
write lib/base/thread_posix.cc '#include <pthread.h>' '#if defined(__linux__)' '#endif'
write lib/base/thread_windows.cc '#include <windows.h>'
write examples/chat/terminal_windows.cc '#include <windows.h>' '#include <dsv4/dsv4.h>'
write lib/base/mutex.h 'void Wait() { condition_.wait(lock); condition_.notify_all(); }'
expect_clean 'sources of one system'
clean_tree
for header in unistd.h sys/mman.h fcntl.h dlfcn.h pthread.h sched.h linux/io_uring.h liburing.h windows.h; do
  breach lib/io/json.h "#include <$header>" "only X_posix.cc and X_windows.cc may include the system's <$header>"
done
breach kernels/cpu/linear.cc '#include <sys/syscall.h>' 'may include the system'
breach include/dsv4/queue.hpp '#include <pthread.h>' 'may include the system'
breach capi/session.cc '#include <unistd.h>' 'may include the system'
breach lib/kv/block_pool.h '#ifdef _WIN32' 'may depend on the system'
breach kernels/cpu/linear.cc '#if defined(__linux__)' 'may depend on the system'
breach capi/session.cc '#elif defined(_WIN32)' 'may depend on the system'
breach lib/kv/block_pool.h 'void f() { epoch_.wait(1); }' 'wait by lib/base/mutex.h'
breach lib/kv/block_pool.h 'void f() { p->notify_one(); }' 'wait by lib/base/mutex.h'
breach lib/kv/block_pool.h 'void f() { std::atomic_wait(&x, 1); }' 'wait by lib/base/mutex.h'

# Layers.
write lib/base/error.h '' '#include "lib/tensor/dtype.h"'
planted lib/base/error.h:3 'lib/base may not include lib/tensor/dtype.h'
breach lib/tensor/dtype.h '#include "kernels/op/linear.h"' 'may not include'
breach lib/device/stream.h '#include "lib/io/json.h"' 'lib/device may not include lib/io/json.h'
write lib/sampling/sampler.h '#include "lib/text/tokenizer.h"'
write lib/text/tokenizer.h
planted lib/sampling/sampler.h:2 'lib/sampling may not include lib/text'
write lib/text/tokenizer.h '#include "lib/sampling/sampler.h"'
write lib/sampling/sampler.h
planted lib/text/tokenizer.h:2 'lib/text may not include lib/sampling'
breach lib/kv/block_pool.h '#include "kernels/op/linear.h"' 'lib/kv may not include kernels/op/linear.h'
breach lib/model/block.cc '#include "kernels/registry/registry.h"' 'may not include kernels/registry/registry.h'
breach lib/model/block.cc '#include "lib/engine/engine.h"' 'lib/model may not include'
breach lib/session/session.cc '#include "kernels/builtin.h"' 'lib/session may not include kernels/builtin.h'
breach lib/engine/engine.cc '#include "kernels/registry/registry.h"' 'may not include kernels/registry/registry.h'
write lib/step/step.h '#include "lib/step/batch.h"'
write lib/step/batch.h
write lib/step/batch.cc '#include "lib/step/batch.h"' '#include "lib/step/step.h"'
planted .h:1 'includes itself: '
# Two folders include each other, in files that do not; a table that allows it does not make it right.
mkdir "$tree/tools"
cp "$1/tools/check_layers.sh" "$tree/tools"
sed 's|allow("lib/step", step|&  " lib/engine"|' "$1/tools/check_layers.awk" >"$tree/tools/check_layers.awk"
write lib/step/step.h '#include "lib/engine/engine.h"'
write lib/step/batch.h
write lib/engine/engine.cc '#include "lib/step/batch.h"'
check=$tree/tools/check_layers.sh planted lib/engine/engine.cc:1 'lib/engine and lib/step include each other'
write examples/chat/turn.h '#include "examples/chat/main.h"'
write examples/chat/main.h '#include "examples/chat/turn.h"'
planted .h:1 'includes itself: '
write lib/kv/kv_sequence.h '#include "lib/kv/kv_cache.h"'
write lib/kv/kv_cache.h
write lib/kv/kv_cache.cc '#include "lib/kv/kv_sequence.h"'
planted .h:1 'includes itself: '
breach kernels/registry/registry.h '#include "kernels/builtin.h"' 'kernels/registry may not include'
breach kernels/builtin.h '#include "lib/kv/block_pool.h"' 'kernels/builtin may not include'
breach kernels/op/linear.h '#include "kernels/registry/dispatch.h"' 'kernels/op may not include'
write kernels/reference/linear.cc '#include "kernels/cpu/linear.h"'
write kernels/cpu/linear.h
planted kernels/reference/linear.cc:2 'kernels/reference may not include kernels/cpu/linear.h'
breach kernels/cpu/linear.cc '#include "lib/kv/block_pool.h"' 'kernels/cpu may not include lib/kv'
breach lib/io/json.h '#include <dsv4/abi.h>' 'may not include the public header'
breach capi/session.cc '#include "kernels/op/linear.h"' 'capi may not include'
breach examples/chat/main.cc '#include "lib/base/error.h"' 'examples may not include lib/base/error.h'
breach tests/capi/session_test.c '#include "absl/status/status.h"' 'tests/capi may not include absl'
breach tests/capi/session_test.c '#include "lib/kv/block_pool.h"' 'tests/capi may not include lib/kv'
breach include/dsv4/abi.h '#include "lib/base/error.h"' 'include may not include lib/base/error.h'
breach examples/chat/main.cc '#include <windows.h>' 'standard headers only'
breach examples/chat/main.cc '#include <simdjson.h>' 'standard headers only'
breach examples/chat/main.cc '#include <QWidget>' 'standard headers only'
write examples/desktop/main.cc '#include <QWidget>' '#include "lib/base/error.h"'
planted examples/desktop/main.cc:3 'examples may not include lib/base/error.h'
write lib/nowhere/thing.cc
planted lib/nowhere/thing.cc:1 'not in the table of layers'

# Spelling of includes.
breach lib/tensor/dtype.h '#include "../base/error.h"' 'not spelled from the root'
write lib/io/json.h '#include "json_value.h"'
write lib/io/json_value.h
planted lib/io/json.h:2 'not spelled from the root'
breach capi/session.cc '#include "dsv4/dsv4.h"' 'included as <dsv4/dsv4.h>'
breach capi/session.cc '#include <dsv4/nothing.h>' 'no public header'

# Public headers.
breach include/dsv4/abi.h '#include <vector>' 'a public header may include'
breach include/dsv4/abi.h '#include <stdbool.h>' 'a public header may include'
breach include/dsv4/abi.h '// not ASCII: é' 'ASCII'

# Manners of library code.
breach lib/io/json.h '#include "absl/container/flat_hash_map.h"' 'hash tables of lib/base/hash_table.h'
breach lib/io/json.h 'inline void f() { std::abort(); }' 'may not call'
write kernels/cpu/linear.cc '' 'int g() { return getenv("N") != nullptr; }'
planted kernels/cpu/linear.cc:3 'may not call'
breach capi/session.cc '/* a comment */ void h() { exit(1); }' 'may not call'
breach lib/io/json.h 'inline void f() { std::cerr << 1; }' 'may not print'
write lib/io/json.h '' 'inline void f() { fprintf(stderr, "x"); }'
planted lib/io/json.h:3 'may not call'
breach lib/io/json.h 'inline void f() { throw 1; }' 'may not throw'
breach capi/session.cc '} catch (...) {' 'caught in capi/guard.h and lib/base/contained.h alone'
write capi/guard.h '} catch (...) {'
expect_clean 'the one place that catches'

# Files.
echo 'int x;' >"$tree/lib/base/plain.cc"
planted lib/base/plain.cc:1 'SPDX'
mkdir -p "$tree/cmake"
echo 'set(X 1)' >"$tree/cmake/Flags.cmake"
planted cmake/Flags.cmake:1 'SPDX'
write lib/base/utils.h
planted lib/base/utils.h:1 'name says nothing'
write lib/base/string_helpers.h
planted lib/base/string_helpers.h:1 'name says nothing'
write tests/common/fixture.h
planted tests/common/fixture.h:1 'name says nothing'
write lib/io/json.h '// TO''DO: later'
planted lib/io/json.h:2 'open end'
write lib/io/json.h
awk 'BEGIN { for (i = 0; i < 800; i++) print "// line" }' >>"$tree/lib/io/json.h"
planted lib/io/json.h:801 'longer than 800 lines'
write lib/io/json.h
awk 'BEGIN { for (i = 0; i < 799; i++) print "// line" }' >>"$tree/lib/io/json.h"
expect_clean 'a file of 800 lines'

# A tree without sources is a mistake of the caller, not a clean tree.
rm -rf "$tree/"*
if "$check" "$tree" >/dev/null 2>&1; then
  echo 'FAILED: an empty tree passes'
  failures=$((failures + 1))
fi

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
