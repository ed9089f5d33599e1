# SPDX-License-Identifier: Apache-2.0
# After read_headers.awk: a Go package that prints the listing of the ABI as cgo sees it (see emit_c.awk).

# cgo puts an underscore before Go's own words.
function go_name(name) { return name ~ /^(type|func|map|range|var|go|select)$/ ? "_" name : name }

END {
  if (failed) exit 1
  print "// SPDX-License-Identifier: Apache-2.0"
  print ""
  print "// Package abi lists the C interface as cgo sees it, for a test. Written from the C headers by"
  print "// tests/bindings/generate.sh; a test fails when they have moved on."
  print "package abi"
  print ""
  print "/*"
  print "#cgo pkg-config: dsv4"
  print "#include <dsv4/dsv4.h>"
  print "*/"
  print "import \"C\""
  print ""
  print "import ("
  print "\t\"fmt\""
  print "\t\"strings\""
  print "\t\"unsafe\""
  print ")"
  print ""
  print "// Listing returns the lines that the C program of emit_c.awk prints."
  print "func Listing() string {"
  print "\tvar out strings.Builder"
  print "\tfield := func(name string, offset, size uintptr) {"
  print "\t\tfmt.Fprintf(&out, \"field %s %d %d\\n\", name, offset, size)"
  print "\t}"
  for (s = 1; s <= struct_count; s++) {
    name = structs[s]
    print "\t{"
    printf "\t\tvar v C.%s\n", name
    printf "\t\tfmt.Fprintf(&out, \"struct %s %%d %%d\\n\", unsafe.Sizeof(v), unsafe.Alignof(v))\n", name
    for (i = 1; i <= field_count[name]; i++) {
      member = "v." go_name(field_name[name, i])
      printf "\t\tfield(\"%s.%s\", unsafe.Offsetof(%s), unsafe.Sizeof(%s))\n", name, \
             field_name[name, i], member, member
    }
    print "\t}"
  }
  print "\tconstant := func(name string, value int64) {"
  print "\t\tfmt.Fprintf(&out, \"constant %s %d\\n\", name, value)"
  print "\t}"
  for (i = 1; i <= constant_count; i++)
    printf "\tconstant(\"%s\", C.%s)\n", constants[i], constants[i]
  print "\tfunction := func(name string, address unsafe.Pointer) {"
  print "\t\tif address != nil {"
  print "\t\t\tfmt.Fprintf(&out, \"function %s\\n\", name)"
  print "\t\t}"
  print "\t}"
  for (i = 1; i <= function_count; i++)
    printf "\tfunction(\"%s\", unsafe.Pointer(C.%s))\n", functions[i], functions[i]
  print "\treturn out.String()"
  print "}"
}
