# SPDX-License-Identifier: Apache-2.0
# After read_headers.awk: Rust. With `-v part=bindings` the declarations, with `-v part=layout` what the
# test of their layout lists (see emit_c.awk).

BEGIN {
  rust["void"] = "c_void"
  rust["char"] = "c_char"
  rust["float"] = "f32"
  rust["double"] = "f64"
  rust["size_t"] = "usize"
  split("8 16 32 64", widths, " ")
  for (i in widths) {
    rust["int" widths[i] "_t"] = "i" widths[i]
    rust["uint" widths[i] "_t"] = "u" widths[i]
  }
}

# Pointers are read from the right: the const before a `*` is of what it points to.
function rust_type(type,    inner) {
  if (type ~ /\*$/) {
    inner = substr(type, 1, length(type) - 1)
    if (inner ~ /\* ?const$/) {
      sub(/ ?const$/, "", inner)
      return "*const " rust_type(inner)
    }
    if (inner !~ /\*/ && sub(/^const /, "", inner)) return "*const " rust_type(inner)
    return "*mut " rust_type(inner)
  }
  sub(/^const /, "", type)
  if (type in rust) return rust[type]
  if (type ~ /^dsv4_[a-z0-9_]+$/) return type
  fail("type " type)
}

# Words that Rust keeps for itself.
function rust_name(name) { return name ~ /^(type|match|move|ref|use|in|fn|mod)$/ ? "r#" name : name }

function arguments_of(name,    text, i) {
  for (i = 1; i <= argument_count[name]; i++)
    text = text (i > 1 ? ", " : "") rust_name(argument_name[name, i]) ": " \
           rust_type(argument_type[name, i])
  return text
}

function returns(name) {
  return result_of[name] == "void" ? "" : " -> " rust_type(result_of[name])
}

END {
  if (failed) exit 1
  print "// SPDX-License-Identifier: Apache-2.0"
  if (part == "bindings") emit_bindings()
  else if (part == "layout") emit_layout()
  else fail("part=" part)
}

function emit_bindings(    s, i, name) {
  print "// Written from the C headers by tests/bindings/generate.sh; a test fails when they have moved on."
  print ""
  print "use std::os::raw::{c_char, c_void};"
  print ""
  for (i = 1; i <= scalar_count; i++)
    printf "pub type %s = %s;\n", scalars[i], rust_type(scalar_type[scalars[i]])
  print ""
  for (i = 1; i <= constant_count; i++) {
    name = constants[i]
    type = type_of[name] == "float" ? "f32" : type_of[name]
    if (type == "") type = (length(value_of[name]) > 9 ? "u64" : "u32")
    printf "pub const %s: %s = %s%s;\n", name, type, value_of[name], (type == "f32" ? ".0" : "")
  }
  for (i = 1; i <= opaque_count; i++) {
    print ""
    print "/// Opaque: of the library alone, behind pointers."
    print "#[repr(C)]"
    printf "pub struct %s {\n", opaques[i]
    print "    _opaque: [u8; 0],"
    print "    _not_send_sync_unpin: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,"
    print "}"
  }
  print ""
  for (i = 1; i <= callback_count; i++)
    printf "pub type %s =\n    Option<unsafe extern \"C\" fn(%s)%s>;\n", callbacks[i], \
           arguments_of(callbacks[i]), returns(callbacks[i])
  for (s = 1; s <= struct_count; s++) {
    name = structs[s]
    print ""
    print "#[repr(C)]"
    print "#[derive(Clone, Copy)]"
    printf "pub struct %s {\n", name
    for (i = 1; i <= field_count[name]; i++)
      printf "    pub %s: %s,\n", rust_name(field_name[name, i]), rust_type(field_type[name, i])
    print "}"
    printf "sized!(%s);\n", name
  }
  print ""
  print "extern \"C\" {"
  for (i = 1; i <= function_count; i++)
    printf "    pub fn %s(%s)%s;\n", functions[i], arguments_of(functions[i]), returns(functions[i])
  print "}"
}

function emit_layout(    s, i, name) {
  print "// Written from the C headers by tests/bindings/generate.sh; an expression for main.rs to include."
  print ""
  print "listing! {"
  for (s = 1; s <= struct_count; s++) {
    name = structs[s]
    printf "    %s {", name
    for (i = 1; i <= field_count[name]; i++)
      printf "%s %s", (i > 1 ? "," : ""), rust_name(field_name[name, i])
    print " }"
  }
  print "    ;"
  for (i = 1; i <= constant_count; i++) print "    " constants[i]
  print "    ;"
  for (i = 1; i <= function_count; i++) print "    " functions[i]
  print "}"
}
