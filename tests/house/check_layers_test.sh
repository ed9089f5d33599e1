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
  write lib/runtime/engine.h '#include "lib/kv/block_pool.h"'
  write lib/runtime/engine.cc '#include "kernels/builtin.h"' '#include "lib/runtime/engine.h"'
  write kernels/op/kv_layout.h '#include <cstdint>'
  write kernels/op/linear.h '#include "lib/tensor/dtype.h"'
  write kernels/registry/dispatch.h '#include "kernels/op/linear.h"'
  write kernels/registry/registry.h
  write kernels/reference/linear.cc '#include "kernels/registry/registry.h"'
  write kernels/cpu/linear.cc '#include "hwy/highway.h"' '#include HWY_TARGET_INCLUDE'
  write kernels/builtin.h '#include "kernels/registry/registry.h"'
  write include/dsv4/abi.h '#include <stdint.h>'
  write include/dsv4/dsv4.h '#include <dsv4/abi.h>'
  write capi/session.cc '#include <dsv4/dsv4.h>' '#include "lib/runtime/engine.h"'
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

clean_tree
expect_clean 'clean tree'

# Look-alikes.
write lib/base/error.h '// calls abort() and printf(' '/* exit(1);' '   getenv("A") */' \
  'const char* s = "exit(1) std::cout";' 'x.exit(); p->signal(3); my_exit(1); snprintf(b, 4, "");'
expect_clean 'look-alikes'
clean_tree

# Layers.
write lib/base/error.h '' '#include "lib/tensor/dtype.h"'
planted lib/base/error.h:3 'lib/base may not include lib/tensor/dtype.h'
write lib/tensor/dtype.h '#include "kernels/op/linear.h"'
planted lib/tensor/dtype.h:2 'may not include'
write lib/device/stream.h '#include "lib/io/json.h"'
planted lib/device/stream.h:2 'lib/device may not include lib/io/json.h'
write lib/sampling/sampler.h '#include "lib/text/tokenizer.h"'
write lib/text/tokenizer.h
planted lib/sampling/sampler.h:2 'lib/sampling may not include lib/text'
write lib/text/tokenizer.h '#include "lib/sampling/sampler.h"'
write lib/sampling/sampler.h
planted lib/text/tokenizer.h:2 'lib/text may not include lib/sampling'
write lib/kv/block_pool.h '#include "kernels/op/linear.h"'
planted lib/kv/block_pool.h:2 'lib/kv may not include kernels/op/linear.h'
write lib/model/block.cc '#include "kernels/registry/registry.h"'
planted lib/model/block.cc:2 'may not include kernels/registry/registry.h'
write lib/model/block.cc '#include "lib/runtime/engine.h"'
planted lib/model/block.cc:2 'lib/model may not include'
write lib/runtime/session.cc '#include "kernels/builtin.h"'
planted lib/runtime/session.cc:2 'lib/runtime may not include kernels/builtin.h'
write lib/runtime/engine.cc '#include "kernels/registry/registry.h"'
planted lib/runtime/engine.cc:2 'may not include kernels/registry/registry.h'
write lib/runtime/step.h '#include "lib/runtime/batch.h"'
write lib/runtime/batch.h
write lib/runtime/batch.cc '#include "lib/runtime/batch.h"' '#include "lib/runtime/step.h"'
planted .h:1 'includes itself: '
write examples/chat/turn.h '#include "examples/chat/main.h"'
write examples/chat/main.h '#include "examples/chat/turn.h"'
planted .h:1 'includes itself: '
write lib/kv/kv_sequence.h '#include "lib/kv/kv_cache.h"'
write lib/kv/kv_cache.h
write lib/kv/kv_cache.cc '#include "lib/kv/kv_sequence.h"'
expect_clean 'one module in two headers'
clean_tree
write kernels/registry/registry.h '#include "kernels/builtin.h"'
planted kernels/registry/registry.h:2 'kernels/registry may not include'
write kernels/builtin.h '#include "lib/kv/block_pool.h"'
planted kernels/builtin.h:2 'kernels/builtin may not include'
write kernels/op/linear.h '#include "kernels/registry/dispatch.h"'
planted kernels/op/linear.h:2 'kernels/op may not include'
write kernels/reference/linear.cc '#include "kernels/cpu/linear.h"'
write kernels/cpu/linear.h
planted kernels/reference/linear.cc:2 'kernels/reference may not include kernels/cpu/linear.h'
write kernels/cpu/linear.cc '#include "lib/kv/block_pool.h"'
planted kernels/cpu/linear.cc:2 'kernels/cpu may not include lib/kv'
write lib/io/json.h '#include <dsv4/abi.h>'
planted lib/io/json.h:2 'may not include the public header'
write capi/session.cc '#include "kernels/op/linear.h"'
planted capi/session.cc:2 'capi may not include'
write examples/chat/main.cc '#include "lib/base/error.h"'
planted examples/chat/main.cc:2 'examples may not include lib/base/error.h'
write tests/capi/session_test.c '#include "absl/status/status.h"'
planted tests/capi/session_test.c:2 'tests/capi may not include absl'
write tests/capi/session_test.c '#include "lib/kv/block_pool.h"'
planted tests/capi/session_test.c:2 'tests/capi may not include lib/kv'
write include/dsv4/abi.h '#include "lib/base/error.h"'
planted include/dsv4/abi.h:2 'include may not include lib/base/error.h'
write examples/chat/main.cc '#include <simdjson.h>'
planted examples/chat/main.cc:2 'standard headers only'
write examples/chat/main.cc '#include <QWidget>'
planted examples/chat/main.cc:2 'standard headers only'
write examples/desktop/main.cc '#include <QWidget>' '#include "lib/base/error.h"'
planted examples/desktop/main.cc:3 'examples may not include lib/base/error.h'
write lib/nowhere/thing.cc
planted lib/nowhere/thing.cc:1 'not in the table of layers'

# Spelling of includes.
write lib/tensor/dtype.h '#include "../base/error.h"'
planted lib/tensor/dtype.h:2 'not spelled from the root'
write lib/io/json.h '#include "json_value.h"'
write lib/io/json_value.h
planted lib/io/json.h:2 'not spelled from the root'
write capi/session.cc '#include "dsv4/dsv4.h"'
planted capi/session.cc:2 'included as <dsv4/dsv4.h>'
write capi/session.cc '#include <dsv4/nothing.h>'
planted capi/session.cc:2 'no public header'

# Public headers.
write include/dsv4/abi.h '#include <vector>'
planted include/dsv4/abi.h:2 'a public header may include'
write include/dsv4/abi.h '#include <stdbool.h>'
planted include/dsv4/abi.h:2 'a public header may include'
write include/dsv4/abi.h '// not ASCII: é'
planted include/dsv4/abi.h:2 'ASCII'

# Manners of library code.
write lib/io/json.h '#include "absl/container/flat_hash_map.h"'
planted lib/io/json.h:2 'hash tables of lib/base/hash_table.h'
write lib/io/json.h 'inline void f() { std::abort(); }'
planted lib/io/json.h:2 'may not call'
write kernels/cpu/linear.cc '' 'int g() { return getenv("N") != nullptr; }'
planted kernels/cpu/linear.cc:3 'may not call'
write capi/session.cc '/* a comment */ void h() { exit(1); }'
planted capi/session.cc:2 'may not call'
write lib/io/json.h 'inline void f() { std::cerr << 1; }'
planted lib/io/json.h:2 'may not print'
write lib/io/json.h '' 'inline void f() { fprintf(stderr, "x"); }'
planted lib/io/json.h:3 'may not call'
write lib/io/json.h 'inline void f() { throw 1; }'
planted lib/io/json.h:2 'may not throw'
write capi/session.cc '} catch (...) {'
planted capi/session.cc:2 'caught in capi/guard.h and lib/base/contained.h alone'
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
