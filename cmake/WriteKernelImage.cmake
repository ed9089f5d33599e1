# SPDX-License-Identifier: Apache-2.0
# cmake -DIMAGE=X.fatbin -DNAME=X -DOUT=X.cc [-DWINDOWS=ON] -P WriteKernelImage.cmake: writes the KernelImage
# dsv4_image_X.

# windows_name(SYMBOL RESULT): the name of a mangled function of Linux for Windows, where int64_t is long long, not long:
# the letters l and m of types become x and y. Names, whose length stands before them, and values are left. What this
# does not understand the linker finds: it knows no host function of that name.
function(windows_name symbol result)
  set(done)
  while(symbol)
    set(replaced)
    if(symbol MATCHES "^L([a-z])(n?[0-9]+E)")  # a value of a built-in type
      string(REPLACE "l" "x" replaced "L${CMAKE_MATCH_1}")
      string(REPLACE "m" "y" replaced "${replaced}")
      set(taken "${CMAKE_MATCH_0}")
      string(APPEND replaced "${CMAKE_MATCH_2}")
    elseif(symbol MATCHES "^LN(S[0-9A-Z]*_)?([0-9]+[A-Za-z_][A-Za-z_0-9]*)E(n?[0-9]+)E")
      # A value of an enumeration. Its names may have an E and digits, too: they are taken by their length.
      set(taken "LN${CMAKE_MATCH_1}")
      string(LENGTH "${taken}" begin)
      string(SUBSTRING "${symbol}" ${begin} -1 names)
      while(names MATCHES "^([0-9]+)")
        string(LENGTH "${CMAKE_MATCH_1}" digits)
        math(EXPR length "${digits} + ${CMAKE_MATCH_1}")
        string(SUBSTRING "${names}" 0 ${length} name)
        string(SUBSTRING "${names}" ${length} -1 names)
        string(APPEND taken "${name}")
      endwhile()
      if(NOT names MATCHES "^E(n?[0-9]+)E")
        message(FATAL_ERROR "the value of an enumeration is not understood: ${names}")
      endif()
      string(APPEND taken "${CMAKE_MATCH_0}")
    elseif(symbol MATCHES "^([0-9]+)")  # a name
      string(LENGTH "${CMAKE_MATCH_1}" digits)
      math(EXPR length "${digits} + ${CMAKE_MATCH_1}")
      string(SUBSTRING "${symbol}" 0 ${length} taken)
    elseif(symbol MATCHES "^(S[0-9A-Z]*_|S[a-z]|T[0-9]*_|Dv[0-9]+_|DF[0-9]+[b_]?|D[a-z]|.)")
      set(taken "${CMAKE_MATCH_1}")
      if(taken STREQUAL "l")
        set(replaced x)
      elseif(taken STREQUAL "m")
        set(replaced y)
      endif()
    endif()
    if(replaced)
      string(APPEND done "${replaced}")
    else()
      string(APPEND done "${taken}")
    endif()
    string(LENGTH "${taken}" length)
    string(SUBSTRING "${symbol}" ${length} -1 symbol)
  endwhile()
  set(${result} "${done}" PARENT_SCOPE)
endfunction()

file(STRINGS ${IMAGE} sections REGEX "^\\.text\\._Z")
list(REMOVE_DUPLICATES sections)
list(SORT sections)
set(declarations)
set(kernels)
set(index 0)
foreach(section ${sections})
  string(REGEX REPLACE "^\\.text\\." "" symbol "${section}")
  set(host "${symbol}")
  if(WINDOWS)
    windows_name("${symbol}" host)
  endif()
  string(APPEND declarations "extern const char host_${index} __asm__(\"${host}\") DSV4_HIDDEN;\n")
  string(APPEND kernels "    {&host_${index}, \"${symbol}\", &dsv4_image_${NAME}},\n")
  math(EXPR index "${index} + 1")
endforeach()
if(index EQUAL 0)
  message(FATAL_ERROR "${IMAGE} has no kernels")
endif()
file(WRITE ${OUT}.new "// Written by cmake/WriteKernelImage.cmake.
#include \"lib/device/kernel_image.h\"

#ifdef _WIN32
#define DSV4_READ_ONLY \".section .rdata,\\\"dr\\\"\"
#define DSV4_HIDDEN
#else
#define DSV4_READ_ONLY \".section .rodata\"
#define DSV4_HIDDEN __attribute__((visibility(\"hidden\")))
#endif
__asm__(DSV4_READ_ONLY \"\\n.balign 64\\ndsv4_bytes_${NAME}:\\n.incbin \\\"${IMAGE}\\\"\\n.text\");

extern \"C\" {

extern const std::byte dsv4_bytes_${NAME}[] DSV4_HIDDEN;
extern dsv4::KernelImage dsv4_image_${NAME};

// The host's functions of the kernels' names.
${declarations}
static dsv4::KernelImage::Kernel kernels[] = {
${kernels}};
constinit dsv4::KernelImage dsv4_image_${NAME} = {dsv4_bytes_${NAME}, kernels, ${index}};
[[maybe_unused]] static const bool added = dsv4::AddKernelImage(&dsv4_image_${NAME});

}  // extern \"C\"
")
file(RENAME ${OUT}.new ${OUT})
