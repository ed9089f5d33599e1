# SPDX-License-Identifier: Apache-2.0
# After read_headers.awk: a C program that prints the listing of the ABI as the C compiler sees it,
# which those of the bindings must equal:
#   struct NAME SIZE ALIGNMENT | field STRUCT.NAME OFFSET SIZE | constant NAME VALUE | function NAME

END {
  print "#include <dsv4/dsv4.h>"
  print "#include <stdio.h>"
  print ""
  print "#define STRUCT(type) \\"
  print "  { struct probe { char before; type value; }; \\"
  print "    printf(\"struct \" #type \" %zu %zu\\n\", sizeof(type), offsetof(struct probe, value)); }"
  print "#define FIELD(type, name) \\"
  print "  printf(\"field \" #type \".\" #name \" %zu %zu\\n\", offsetof(type, name), sizeof(((type*)0)->name))"
  print "#define CONSTANT(name) printf(\"constant \" #name \" %lld\\n\", (long long)(name))"
  print "#define FUNCTION(name) { void (*address)(void) = (void (*)(void))name; \\"
  print "    if (address) printf(\"function \" #name \"\\n\"); }"
  print ""
  print "int main(void) {"
  for (s = 1; s <= struct_count; s++) {
    printf "  STRUCT(%s)\n", structs[s]
    for (i = 1; i <= field_count[structs[s]]; i++)
      printf "  FIELD(%s, %s);\n", structs[s], field_name[structs[s], i]
  }
  for (i = 1; i <= constant_count; i++) printf "  CONSTANT(%s);\n", constants[i]
  for (i = 1; i <= function_count; i++) printf "  FUNCTION(%s)\n", functions[i]
  print "  return 0;"
  print "}"
}
