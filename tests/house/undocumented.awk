# SPDX-License-Identifier: Apache-2.0
# Over Doxygen's XML of the public headers: a line for each function and each type without a comment,
# and at last how many functions of C there are. Copies, moves, operators and what makes a range of a
# class say themselves what they are.
function text_of(line) {
  gsub(/<[^>]*>|^ +/, "", line)
  gsub(/&lt;/, "<", line)
  gsub(/&gt;/, ">", line)
  gsub(/&amp;/, "\\&", line)
  return line
}

/<compounddef / { is_type = /kind="(struct|class)"/; described = 0 }
/<compoundname>/ { compound = text_of($0) }
/<memberdef / { is_function = /kind="function"/ && !/prot="private"/; in_member = 1; documented = 0 }
in_member && /<definition>/ { definition = text_of($0) }
in_member && /<argsstring>/ { arguments = text_of($0) }
in_member && /<name>/ { name = text_of($0) }
/<(brief|detailed)description>/ { in_description = 1 }
in_description && /<para>/ { if (in_member) documented = 1; else described = 1 }
/<\/(brief|detailed)description>/ { in_description = 0 }
/<\/memberdef>/ {
  in_member = 0
  if (!is_function) next
  if (name ~ /^dsv4_/) functions++
  obvious = name ~ /^(operator|~|iterator$|begin$|end$)/ || arguments ~ /&& *other|=(delete|default)|^\(const [A-Za-z]+ &\)/
  if (!documented && !obvious) print definition arguments
}
/<\/compounddef>/ { if (is_type && !described && compound !~ /iterator$/) print compound }
END { print functions + 0 }
