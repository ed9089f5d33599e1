# SPDX-License-Identifier: Apache-2.0
# Turns the comments of a public header into Doxygen's: one before a declaration describes it, one
# behind a field describes the field, and the first of a file describes the file. Lines stay lines, so
# that warnings name the right ones.

# Text that Doxygen would take for a tag or a command.
function escaped(text) {
  gsub(/[<>@\\]/, "\\\\&", text)
  return text
}

# The file's comment begins in place of the licence line.
FNR == 1 && /^\/\* SPDX/ { print "/** @file"; in_block = $0 !~ /\*\//; next }
FNR == 1 && /^\/\/ SPDX/ { print "/// @file"; next }

in_block {
  in_block = $0 !~ /\*\//
  end = sub(/ *\*\/$/, "")
  print escaped($0) (end ? " */" : "")
  next
}

/^ *#(endif|else)/ { print; next }

# Comments in bodies of functions are not for the reference.
/^ {4,}\/\// { print ""; next }

match($0, /^ *\/\//) {
  print substr($0, 1, RLENGTH) "/" escaped(substr($0, RLENGTH + 1))
  next
}

match($0, /^ *\/\*/) {
  begin = substr($0, 1, RLENGTH) "*"
  text = substr($0, RLENGTH + 1)
  in_block = text !~ /\*\//
  end = sub(/ *\*\/$/, "", text)
  print begin escaped(text) (end ? " */" : "")
  next
}

# Behind code: /* to the end of the line or over several, or //.
match($0, /[;,)0-9a-zA-Z] +\/\*/) {
  code = substr($0, 1, RSTART + RLENGTH - 3)
  text = substr($0, RSTART + RLENGTH)
  in_block = text !~ /\*\//
  end = sub(/ *\*\/$/, "", text)
  print code "/**<" escaped(text) (end ? " */" : "")
  next
}

match($0, /; +\/\//) {
  print substr($0, 1, RSTART + RLENGTH - 3) "///<" escaped(substr($0, RSTART + RLENGTH))
  next
}

{ print }
