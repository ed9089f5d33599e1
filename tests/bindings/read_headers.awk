# SPDX-License-Identifier: Apache-2.0
# Reads the public C headers into the tables that the emit_*.awk write their language from. It knows
# the few forms that the headers are written in, and fails on anything else, so that nothing of the
# ABI is left out in silence.
#
#   constants[1..constant_count], value_of[name], type_of[name] ("" for a plain unsigned number)
#   scalars[1..scalar_count], scalar_type[name]       typedef int32_t dsv4_role
#   opaques[1..opaque_count]                          typedef struct dsv4_engine dsv4_engine
#   structs[1..struct_count], field_count[s], field_name[s, i], field_type[s, i]
#   callbacks[1..callback_count], functions[1..function_count], and of both
#   result_of[name], argument_count[name], argument_name[name, i], argument_type[name, i]
# Types are as in C, with one space between words and none before a `*`.

function fail(text) {
  printf "error: the headers have a form that read_headers.awk does not know: %s\n", text >"/dev/stderr"
  failed = 1
  exit 1
}

function trim(text) {
  gsub(/[ \t]+/, " ", text)
  sub(/^ /, "", text)
  sub(/ $/, "", text)
  gsub(/ \*/, "*", text)
  return text
}

# A declarator "const char* name" to declared_type and declared_name.
function declare(text) {
  text = trim(text)
  if (!match(text, /[A-Za-z_0-9]+$/) || RSTART == 1) fail(text)
  declared_name = substr(text, RSTART)
  declared_type = trim(substr(text, 1, RSTART - 1))
}

function read_arguments(name, text,    parts, n, i) {
  text = trim(text)
  n = text == "void" || text == "" ? 0 : split(text, parts, ",")
  argument_count[name] = n
  for (i = 1; i <= n; i++) {
    declare(parts[i])
    argument_name[name, i] = declared_name
    argument_type[name, i] = declared_type
  }
}

function read_struct(name, body,    parts, n, i) {
  structs[++struct_count] = name
  n = split(body, parts, ";")
  if (trim(parts[n]) != "") fail(name ": " parts[n])
  field_count[name] = n - 1
  for (i = 1; i < n; i++) {
    if (parts[i] ~ /[,:\[(]/) fail(name ": " parts[i])
    declare(parts[i])
    field_name[name, i] = declared_name
    field_type[name, i] = declared_type
  }
}

function read_define(text,    name, value) {
  sub(/^#define +/, "", text)
  text = trim(text)
  name = text
  sub(/[ (].*/, "", name)
  value = trim(substr(text, length(name) + 1))
  # Guards, attributes, brackets of declarations and initializers are no part of the ABI.
  if (value == "" || name ~ /^DSV4_(API|NOEXCEPT|BEGIN_DECLS|END_DECLS)$/ || name ~ /_INIT$/) return
  if (value ~ /^\(\((dsv4_[a-z_]+|float)\)-?[0-9]+\)$/) {
    type_of[name] = value
    gsub(/^\(\(|\).*/, "", type_of[name])
    value = substr(value, 1, length(value) - 1)
    sub(/^.*\)/, "", value)
  } else if (value ~ /^[0-9]+u$/) {
    type_of[name] = ""
    value = substr(value, 1, length(value) - 1)
  } else {
    fail("#define " text)
  }
  constants[++constant_count] = name
  value_of[name] = value
}

function read_statement(text,    name, open) {
  text = trim(text)
  if (text ~ /^typedef struct dsv4_[a-z_0-9]+ dsv4_[a-z_0-9]+$/) {
    sub(/.* /, "", text)
    opaques[++opaque_count] = text
  } else if (text ~ /^typedef struct dsv4_[a-z_0-9]+ \{/) {
    name = text
    sub(/^typedef struct /, "", name)
    sub(/ .*/, "", name)
    open = index(text, "{")
    sub(/\} dsv4_[a-z_0-9]+$/, "", text)
    read_struct(name, substr(text, open + 1))
  } else if (text ~ /^typedef [a-z0-9_]+ dsv4_[a-z_0-9]+$/) {
    declare(substr(text, 9))
    scalars[++scalar_count] = declared_name
    scalar_type[declared_name] = declared_type
  } else if (text ~ /^typedef [a-z0-9_* ]+ ?\(\*dsv4_[a-z_0-9]+\) ?\(.*\)$/) {
    text = substr(text, 9)
    open = index(text, "(")
    name = text
    sub(/^[^(]*\( ?\*/, "", name)
    sub(/\).*/, "", name)
    callbacks[++callback_count] = name
    result_of[name] = trim(substr(text, 1, open - 1))
    sub(/^[^)]*\) ?\(/, "", text)
    read_arguments(name, substr(text, 1, length(text) - 1))
  } else if (text ~ /^DSV4_API .*\(.*\) DSV4_NOEXCEPT$/) {
    open = index(text, "(")
    declare(substr(text, 10, open - 10))
    name = declared_name
    functions[++function_count] = name
    result_of[name] = declared_type
    sub(/\) DSV4_NOEXCEPT$/, "", text)
    read_arguments(name, substr(text, open + 1))
  } else {
    fail(text)
  }
}

{
  line = $0
  # Comments, over several lines too.
  kept = ""
  while (line != "") {
    if (in_comment) {
      if (!(at = index(line, "*/"))) break
      line = substr(line, at + 2)
      in_comment = 0
    } else if (at = index(line, "/*")) {
      kept = kept substr(line, 1, at - 1) " "
      line = substr(line, at + 2)
      in_comment = 1
    } else {
      kept = kept line
      break
    }
  }
  if (kept ~ /\\[ \t]*$/) {
    sub(/\\[ \t]*$/, " ", kept)
    continued = continued kept
    next
  }
  kept = continued kept
  continued = ""
  if (kept ~ /^#define /) read_define(kept)
  if (kept ~ /^#/) next
  if (kept ~ /^DSV4_(BEGIN|END)_DECLS$/) next

  # A statement ends with a semicolon outside of braces.
  for (i = 1; i <= length(kept); i++) {
    letter = substr(kept, i, 1)
    if (letter == "{") depth++
    if (letter == "}") depth--
    if (letter == ";" && depth == 0) {
      read_statement(statement)
      statement = ""
    } else {
      statement = statement letter
    }
  }
  statement = statement " "
}

END {
  if (failed) exit 1
  if (trim(statement) != "") fail(statement)
}
