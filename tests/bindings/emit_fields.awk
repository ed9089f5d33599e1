# SPDX-License-Identifier: Apache-2.0
# After read_headers.awk: the structs that the library fills, with the comments of their fields, as
# the bindings and programs have them. With `-v part=rust` and `-v part=go` structs of that language
# and copies from C; with `-v part=cpp` functions that visit the fields of those of an engine.

BEGIN {
  filled = "engine_info engine_metrics device_info device engine_identity sync_result session_stats"
  # What is 0 or 1.
  flag = "^(has_tokenizer|suspended|device_lost|usable|integrated)$"
}

# Comments: `doc` of a struct or "struct.field", lines separated by newlines. A comment of a few words
# above fields is the heading of a group.
/^typedef struct dsv4_[a-z_]+ \{$/ {
  of = $3
  doc[of] = above
  above = ""
}
/^}/ { of = "" }
/^ *(\/\*| \*)/ {
  text = $0
  sub(/^ *(\/\*|\*) ?/, "", text)
  whole = sub(/ *\*\/$/, "", text)
  above = (above == "" || $0 ~ /\/\*/ ? "" : above "\n") text
  if (of != "" && $0 ~ /\/\*/ && whole && split(text, words, " ") < 5) above = ""
}
/^  [a-z].*;/ && of != "" {
  field = text = $0
  sub(/;.*/, "", field)
  sub(/.*[ *]/, "", field)
  if (!sub(/.*; *\/\* /, "", text)) text = ""
  sub(/ *\*\/$/, "", text)
  doc[of "." field] = above (above != "" && text != "" ? "\n" : "") text
  above = ""
}
/^$/ { above = "" }

function print_doc(of, prefix,    lines, n, i) {
  n = split(doc[of], lines, "\n")
  for (i = 1; i <= n; i++) print prefix (lines[i] == "" ? "" : " ") lines[i]
}

# context_tokens as ContextTokens, with Go's initialisms if asked for.
function camel(name, go,    words, n, i) {
  n = split(name, words, "_")
  name = ""
  for (i = 1; i <= n; i++) {
    if (go && words[i] ~ /^(bos|cpu|eos)$/) name = name toupper(words[i])
    else name = name toupper(substr(words[i], 1, 1)) substr(words[i], 2)
  }
  return name
}

function name_of(struct) { return struct == "session_stats" ? "Stats" : camel(struct) }

function type_in(language, type, field) {
  if (type == "const char*") return language == "go" ? "string" : "String"
  if (field ~ flag) return "bool"
  if (sub(/^dsv4_/, "", type)) return camel(type)
  if (type == "double") return language == "go" ? "float64" : "f64"
  sub(/_t$/, "", type)
  if (language != "go") sub(/int/, type ~ /^u/ ? "" : "i", type)
  return type
}

function copied(type, field) {
  if (type == "const char*") return "C.GoString(c." field ")"
  if (field ~ flag) return "c." field " != 0"
  return type_in("go", type, field) "(c." field ")"
}

function emit_rust(struct, c,    i, field) {
  print ""
  print_doc(c, "    ///")
  printf "    %s of %s {\n", name_of(struct), c
  for (i = 2; i <= field_count[c]; i++) {
    field = field_name[c, i]
    if (field ~ /^reserved/) continue
    print_doc(c "." field, "        ///")
    printf "        %s: %s,\n", field, type_in("rust", field_type[c, i], field)
  }
  print "    }"
}

# gofmt aligns the types of fields up to the next comment.
function widest(c, i,    width, name) {
  do {
    name = camel(field_name[c, i], 1)
    if (length(name) > width) width = length(name)
  } while (++i <= field_count[c] && doc[c "." field_name[c, i]] == "")
  return width
}

function emit_go(struct, c,    i, field, name, width) {
  name = name_of(struct)
  printf "\n// %s has the fields of %s.\n//\n", name, c
  print_doc(c, "//")
  printf "type %s struct {\n", name
  for (i = 2; i <= field_count[c]; i++) {
    field = field_name[c, i]
    if (field ~ /^reserved/) continue
    print_doc(c "." field, "\t//")
    if (i == 2 || doc[c "." field] != "") width = widest(c, i)
    printf "\t%-" width "s %s\n", camel(field, 1), type_in("go", field_type[c, i], field)
  }
  printf "}\n\nfunc new%s(c *C.%s) (out %s) {\n", name, c, name
  for (i = 2; i <= field_count[c]; i++) {
    field = field_name[c, i]
    if (field !~ /^reserved/)
      printf "\tout.%s = %s\n", camel(field, 1), copied(field_type[c, i], field)
  }
  print "\treturn out\n}"
}

# The names of a type's constants: "dspark" for DSV4_DRAFTER_DSPARK.
function emit_names(type,    i, prefix) {
  prefix = toupper(type) "_"
  printf "\ninline const char* %sName(%s value) {\n  switch (value) {\n", camel(substr(type, 6)), type
  for (i = 1; i <= constant_count; i++) {
    if (type_of[constants[i]] == type)
      printf "    case %s:\n      return \"%s\";\n", constants[i], \
             tolower(substr(constants[i], length(prefix) + 1))
  }
  print "    default:\n      return \"unknown\";\n  }\n}"
}

# `visit` takes the name and an integer, a double, a bool or a text.
function emit_cpp(struct, c,    i, field, type, value) {
  printf "\ntemplate <class Visit>\nvoid ForEachField(const %s& in, const Visit& visit) {\n", c
  for (i = 2; i <= field_count[c]; i++) {
    field = field_name[c, i]
    type = field_type[c, i]
    value = "in." field
    if (field ~ flag) value = value " != 0"
    else if (sub(/^dsv4_/, "", type)) value = camel(type) "Name(" value ")"
    printf "  visit(\"%s\", %s);\n", field, value
  }
  print "}"
}

END {
  if (failed) exit 1
  written = "// Written from the C headers by tests/bindings/generate.sh; a test fails when they have moved on."
  print "// SPDX-License-Identifier: Apache-2.0"
  if (part == "rust") {
    print "//! What the library reports."
    print written
    print ""
    print "use crate::codes::{Alarms, Backend, Canary, Drafter, ReuseLimit};"
    print "use crate::mirror::{mirrors, FromC};"
    print "use dsv4_sys as sys;"
    print ""
    printf "mirrors! {"
  } else if (part == "go") {
    print written
    print ""
    print "package dsv4"
    print ""
    print "// #include <dsv4/dsv4.h>"
    print "import \"C\""
  } else {
    print "// The fields of structs that the library fills, by name."
    print written
    print "#pragma once"
    print ""
    print "#include <dsv4/dsv4.h>"
    print ""
    print "namespace chat {"
    emit_names("dsv4_backend")
    emit_names("dsv4_drafter")
    emit_names("dsv4_canary")
  }
  n = split(filled, structs_filled, " ")
  for (s = 1; s <= n; s++) {
    c = "dsv4_" structs_filled[s]
    if (!(c in field_count)) fail("no struct " c)
    if (part == "rust") emit_rust(structs_filled[s], c)
    else if (part == "go") emit_go(structs_filled[s], c)
    else if (c ~ /engine_(info|metrics)$|device_info$/) emit_cpp(structs_filled[s], c)
  }
  if (part == "rust") print "}"
  if (part == "cpp") print "\n}  // namespace chat"
}
