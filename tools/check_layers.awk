# SPDX-License-Identifier: Apache-2.0
# The house rules over a list of files on stdin (paths from the root, sorted), in the directory of the
# root: includes, layers, names, sizes, licence lines, and what library code may not do. Run by
# check_layers.sh. POSIX awk, because a build machine has awk and need not have Python.

# allow(FOLDER, LIST): files of FOLDER may include their own folder, and the folders or files of LIST.
function allow(folder, list) { allowed[folder] = folder " " list }

BEGIN {
  base = "lib/base lib/tensor lib/device"
  allow("lib/base", "")
  allow("lib/tensor", "lib/base")
  allow("lib/device", "lib/base lib/tensor")
  allow("lib/io", base)

  allow("kernels/op", base)
  allow("kernels/registry", base " kernels/op")
  allow("kernels/tuning", base " lib/io kernels/op kernels/registry")
  allow("kernels/reference", base " kernels/op kernels/registry")
  allow("kernels/cpu", base " kernels/op kernels/registry")
  allow("kernels/sm12x", base " kernels/op kernels/registry")
  allow("kernels/builtin", base " kernels/op kernels/registry kernels/tuning kernels/reference kernels/cpu kernels/sm12x")

  # What block owners and kernels share: the bytes of a row, and a sequence's rows in a step. What the
  # sampler shares with them: the weights of tokens, and lists of those that are left to choose from.
  allow("lib/kv", base " lib/io kernels/op/kv_layout.h kernels/op/step_rows.h")
  allow("lib/sampling", base " lib/io kernels/op/token_candidates.h kernels/op/token_weight.h")
  allow("lib/text", base " lib/io")
  allow("lib/grammar", base " lib/io")
  operators = "kernels/op kernels/registry/dispatch.h"
  allow("lib/dist", base " " operators)
  allow("lib/config", base " lib/io kernels/op")
  allow("lib/packing", base " lib/io lib/config " operators)
  weights = base " lib/io lib/config lib/packing lib/experts " operators
  allow("lib/experts", weights)
  allow("lib/weights", weights)
  model = weights " lib/dist lib/weights lib/kv lib/sampling lib/text"
  allow("lib/model", model)
  step = model " lib/model lib/grammar"
  allow("lib/step", step)
  # The engine alone names the list of backends, with their tuning files.
  allow("lib/engine", step " lib/step kernels/builtin.h kernels/tuning/tuning_file.h")
  allow("lib/session", step " lib/step lib/engine")
  allow("lib/proof", step " lib/step lib/engine")

  allow("include", "")
  allow("capi", "include lib/base lib/tensor lib/device lib/io lib/text lib/grammar lib/sampling lib/config lib/experts lib/step " \
        "lib/engine lib/session lib/proof")
  allow("examples", "include")
  public_tests = "include tests/support/catch.h tests/support/wrapped_engine_step.h"
  allow("tests/capi", public_tests)
  # Tests, tools, benchmarks and fuzz targets look at anything.
  anything = base " lib kernels capi include tests benchmarks tools"
  allow("tests", anything)
  allow("tools", anything)
  allow("benchmarks", anything " examples/console")
  allow("fuzz", anything " examples/dsv4-server")
  allow("tests/capi/recorded", anything)
  allow("tests/examples/desktop", "examples/desktop " public_tests)
  allow("tests/examples/dsv4-server", anything " examples/dsv4-server/http_parser.h examples/dsv4-server/log.h")
  # Programs like dsv4-chat, with which they share files; not examples, so their locks are the library's.
  allow("benchmarks/dsv4-bench", "include examples/console lib/base/mutex.h lib/base/loaded_library.h benchmarks/clock.h")
  # dsv4-verify takes the names of models that the other programs take.
  allow("tools/verify", anything " examples/console/hub_models.h")
  allow("tools/gates", "include examples/console lib/base/mutex.h benchmarks/dsv4-bench/statistics.h")
  allow("tests/tools", anything " examples/console/failure.h")
  allow("tests/benchmarks", anything " examples/console/failure.h")

  # Sources of other projects: quoted as their own documentation does.
  external = "^(absl|google|hwy|benchmark|catch2)/|^(simdjson|pcre2)\\.h$"
  posix = "^<(arpa|linux|netinet|sys)/"
  # C and POSIX headers; a C++ standard header is a single word without an ending.
  c_header = "^<(assert|complex|ctype|dirent|dlfcn|errno|fcntl|fenv|float|inttypes|langinfo|limits|locale|malloc|math|" \
             "netdb|poll|pthread|pty|setjmp|signal|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|" \
             "strings|termios|tgmath|time|unistd|wchar|wctype)\\.h>$"
  # What dsv4-chat links besides dsv4: its line editor and a reader of JSON.
  chat_header = "^<(histedit|simdjson)\\.h>$"
  # What dsv4-server uses: sockets and HTTP, and JSON.
  server_header = "^<(boost/(asio|beast)/[a-z0-9_/]+\\.hpp|nlohmann/json\\.hpp)>$"
  # What dsv4-desktop links: Qt. Its headers are called as their classes.
  qt_header = "^<Q[A-Za-z]+>$"
  # Files here include one another in one direction, X.h and X.cc taken together: what is called never
  # includes its caller.
  acyclic = "^(lib|kernels|capi|examples|tools)/"
  max_lines = 800
  library_code = "^(lib|kernels|capi)/"

  # What differs by system stands in X_posix.cc and X_windows.cc, of which CMake takes one.
  system_source = "_(posix|windows)\\.cc$"
  system_header = "^<((arpa|linux|net|netinet|sys)/.*|(aio|direct|dirent|dlfcn|fcntl|glob|io|langinfo|liburing|netdb|poll|" \
                  "process|pthread|sched|signal|spawn|synchapi|termios|unistd|windows|winsock2|ws2tcpip)\\.h|csignal)>$"
  system_macro = "(^|[^A-Za-z0-9_])(_WIN32|_WIN64|__MINGW32__|__linux__|__unix__|__APPLE__)([^A-Za-z0-9_]|$)"
  # Of std::atomic. libstdc++ without a futex loses wake-ups; others go through lib/base/mutex.h.
  atomic_wait = "(\\.|->|std::atomic_)(wait(_explicit)?|notify_one|notify_all) *\\("

  # A call of something that a library may not do, after comments and strings are gone. Members of
  # that name (x.exit(), x->signal()) are something else.
  forbidden_call = "(^|[^A-Za-z0-9_.>])(abort|exit|_exit|_Exit|quick_exit|getenv|secure_getenv|setenv|" \
                   "putenv|setlocale|signal|sigaction|chdir|printf|fprintf|vprintf|vfprintf|puts|fputs|" \
                   "putchar|perror|system) *\\("
  forbidden_stream = "std::(cout|cerr|clog)([^A-Za-z0-9_]|$)"

  while ((getline path) > 0) check(path)
  for (stem in includes) find_cycle(stem, stem)
  for (pair in first_include) {
    split(pair, pair_of, SUBSEP)
    if ((pair_of[2], pair_of[1]) in first_include && pair_of[1] < pair_of[2])
      report(first_include[pair], 1, pair_of[1] " and " pair_of[2] " include each other: " \
             first_include[pair_of[2], pair_of[1]])
  }
  if (findings > 0) {
    printf "%d findings in %d files\n", findings, files
    exit 1
  }
  printf "%d files, no finding\n", files
  exit (files > 0 ? 0 : 2)
}

function report(path, line, text) {
  printf "%s:%d: %s\n", path, line, text
  findings++
}

# The longest entry of the table that is the file itself or a folder above it; "" without any.
function layer_of(path,    at) {
  if (path ~ /^kernels\/builtin\./) return "kernels/builtin"
  for (at = path; at != "";) {
    if (at in allowed) return at
    if (!sub(/\/[^\/]*$/, "", at)) return ""
  }
  return ""
}

function exists(path,    line, status) {
  if (!(path in known)) {
    status = (getline line < path)
    close(path)
    known[path] = status >= 0
  }
  return known[path]
}

# May a file of `layer` include `target`, a path from the root?
function may_include(layer, target,    list, n, i) {
  n = split(allowed[layer], list, " ")
  for (i = 1; i <= n; i++)
    if (list[i] == target || list[i] == layer_of(target) || index(target, list[i] "/") == 1) return 1
  return 0
}

function check_include(path, number, line, layer,    target, surface) {
  surface = layer == "examples" || layer ~ /^tests\/(capi|examples\/desktop)$/ || layer == "benchmarks/dsv4-bench"
  sub(/ *\/[\/*].*/, "", line)
  if (match(line, /<[^>]*>/)) {
    target = substr(line, RSTART, RLENGTH)
    if (path ~ /^(lib|kernels|capi|include)\// && path !~ system_source && target ~ system_header)
      report(path, number, "only X_posix.cc and X_windows.cc may include the system's " target)
    if (target ~ /^<dsv4\//) {
      target = "include/" substr(target, 2, length(target) - 2)
      if (!exists(target)) report(path, number, "no public header " target)
      else if (!may_include(layer, target)) report(path, number, layer " may not include the public header " target)
    } else if (layer == "include") {
      if (path ~ /\.h$/ && target !~ /^<(stddef|stdint)\.h>$/ || target !~ /^<[a-z_0-9]+(\.h)?>$/)
        report(path, number, "a public header may include <stddef.h>, <stdint.h> and <dsv4/...> only, not " target)
    } else if (path ~ /^(examples\/dsv4-chat\/|tests\/capi\/cli_)/ && target ~ chat_header) {
      # Its own, and that of its tests.
    } else if (path ~ /^examples\/dsv4-server\// && target ~ server_header) {
      # Its own.
    } else if (path ~ /^(tests\/)?examples\/desktop\// && target ~ qt_header) {
      # Its own, and that of its tests.
    } else if (path ~ system_source && target ~ system_header) {
      # Of a program.
    } else if (surface && target !~ /^<[a-z_0-9]+>$/ && target !~ c_header && target !~ posix) {
      report(path, number, layer " may include <dsv4/...> and standard headers only, not " target)
    }
    return
  }
  if (!match(line, /"[^"]*"/)) return  # a macro
  target = substr(line, RSTART + 1, RLENGTH - 2)
  # What is refused below is found there.
  if (path ~ acyclic && target ~ acyclic && stem_of(path) != stem_of(target) &&
      (surface || may_include(layer, target))) {
    includes[stem_of(path)] = includes[stem_of(path)] " " stem_of(target)
    if (path ~ /^lib\// && target ~ /^lib\// && folder_of(path) != folder_of(target))
      first_include[folder_of(path), folder_of(target)] = path
  }
  if (target ~ /(^|\/)\.\.\//) {
    report(path, number, "include \"" target "\" is not spelled from the root")
  } else if (target ~ external) {
    if (surface || layer == "include") report(path, number, layer " may not include " target)
    if (path ~ library_code && target ~ /^absl\/container\/(flat|node)_hash/)
      report(path, number, "library code takes the hash tables of lib/base/hash_table.h")
  } else if (target ~ /^dsv4\//) {
    report(path, number, "public headers are included as <" target ">")
  } else if (target !~ /\.pb\.h$/ && !exists(target) && !exists(target ".in")) {
    report(path, number, "include \"" target "\" is not spelled from the root, or does not exist")
  } else if (surface && index(target, folder_of(path) "/") == 1) {
    return  # a program's own header
  } else if (!may_include(layer, target)) {
    report(path, number, layer " may not include " target)
  }
}

function stem_of(path) {
  sub(/\.(h|cc)$/, "", path)
  return path
}

# Reports a cycle of includes through `stem`; `chain`: the stems from the first one on.
function find_cycle(stem, chain,    list, n, i) {
  if (stem in visited) {
    sub("^.* -> " stem " -> ", stem " -> ", chain)
    if (visited[stem] == "open") report(stem (stem ~ /\.[a-z]+$/ ? "" : ".h"), 1, "includes itself: " chain)
    return
  }
  visited[stem] = "open"
  n = split(includes[stem], list, " ")
  for (i = 1; i <= n; i++) find_cycle(list[i], chain " -> " list[i])
  visited[stem] = "done"
}

function folder_of(path) {
  sub(/\/[^\/]*$/, "", path)
  return path
}

# `line` without string and character literals and comments; `in_comment` carries /* over lines.
function code_of(line,    start, end) {
  if (in_comment) {
    end = index(line, "*/")
    if (!end) return ""
    line = substr(line, end + 2)
    in_comment = 0
  }
  gsub(/\\./, "", line)
  gsub(/"[^"]*"/, "\"\"", line)
  gsub(/'[^']'/, "0", line)
  while (start = index(line, "/*")) {
    if (index(line, "//") && index(line, "//") < start) break
    end = index(substr(line, start + 2), "*/")
    if (!end) {
      in_comment = 1
      line = substr(line, 1, start - 1)
      break
    }
    line = substr(line, 1, start - 1) " " substr(line, start + 2 + end + 1)
  }
  sub(/\/\/.*/, "", line)
  return line
}

function check(path,    name, layer, number, line, code, is_code, is_library_code, licensed) {
  files++
  name = path
  sub(/^.*\//, "", name)
  if (path ~ /(^|\/)_*(utils?|common|helpers?|misc)(\/|\.|$)/ || name ~ /_(utils?|helpers?|new|v2)\./)
    report(path, 1, "the name says nothing about what it holds")
  is_code = name ~ /\.(h|hpp|cc|c|cu|cuh)$/
  is_library_code = is_code && path ~ library_code
  layer = layer_of(path)
  if (is_code && layer == "") report(path, 1, "folder is not in the table of layers")
  in_comment = 0
  licensed = 0
  for (number = 1; (getline line < path) > 0; number++) {
    # A script's first line is its interpreter.
    if (number == 1 || number == 2 && interpreter)
      licensed = licensed || line ~ /^(\/\/|\/\*|#) SPDX-License-Identifier: Apache-2\.0( \*\/)?$/
    interpreter = number == 1 && line ~ /^#!/
    if (line ~ /(^|[^A-Za-z_])(TODO|FIXME|XXX)([^A-Za-z_]|$)/ && line !~ /#[0-9]/ && path != "tools/check_layers.awk")
      report(path, number, "an open end without the number of its issue")
    if (!is_code) continue
    # The public header asks for the system to say how symbols are exported.
    if (path ~ /^(lib|kernels|capi|include)\// && path !~ system_source && path != "include/dsv4/abi.h" &&
        line ~ /^ *# *(el)?if/ && line ~ system_macro)
      report(path, number, "only X_posix.cc and X_windows.cc may depend on the system")
    if (path ~ /^include\// && line ~ /[^\t -~]/) report(path, number, "public headers are ASCII")
    if (line ~ /^ *# *include/) {
      if (layer != "") check_include(path, number, line, layer)
      continue
    }
    if (!is_library_code) continue
    code = code_of(line)
    if (match(code, forbidden_call)) report(path, number, "library code may not call " substr(code, RSTART, RLENGTH) ")")
    if (code ~ atomic_wait && path != "lib/base/mutex.h")
      report(path, number, "wait by lib/base/mutex.h or lib/base/waitable_word.h")
    if (match(code, forbidden_stream)) report(path, number, "library code may not print")
    if (code ~ /(^|[^A-Za-z0-9_])throw([^A-Za-z0-9_]|$)/) report(path, number, "library code may not throw")
    if (code ~ /(^|[^A-Za-z0-9_])catch *\(/ && path != "capi/guard.h" && path != "lib/base/contained.h")
      report(path, number, "exceptions are caught in capi/guard.h and lib/base/contained.h alone")
  }
  close(path)
  if (!licensed) report(path, 1, "does not begin with the SPDX line")
  if (number - 1 > max_lines)
    report(path, number - 1, "longer than " max_lines " lines")
}
