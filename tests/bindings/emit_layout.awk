# SPDX-License-Identifier: Apache-2.0
# After read_headers.awk: a C++ source that compiles only if no public struct has hidden padding, so
# that its layout is what its declaration says in every language.

END {
  if (failed) exit 1
  print "#include <dsv4/dsv4.h>"
  print "#include <cstddef>"
  print "static_assert(sizeof(void*) == 8, \"the layouts are those of 64-bit machines\");"
  for (s = 1; s <= struct_count; s++) {
    name = structs[s]
    end = "0"
    for (i = 1; i <= field_count[name]; i++) {
      field = field_name[name, i]
      printf "static_assert(offsetof(%s, %s) == %s, \"%s.%s follows padding\");\n", name, field, \
             end, name, field
      end = "offsetof(" name ", " field ") + sizeof(" name "::" field ")"
    }
    printf "static_assert(sizeof(%s) == %s, \"%s ends with padding\");\n", name, end, name
  }
}
