# SPDX-License-Identifier: Apache-2.0
# cmake -DIMAGE=X.fatbin -DNAME=X -DOUT=X.cc -P WriteKernelImage.cmake: writes the KernelImage dsv4_image_X.
file(STRINGS ${IMAGE} sections REGEX "^\\.text\\._Z")
list(REMOVE_DUPLICATES sections)
list(SORT sections)
set(declarations)
set(kernels)
set(index 0)
foreach(section ${sections})
  string(REGEX REPLACE "^\\.text\\." "" symbol "${section}")
  string(APPEND declarations
         "extern const char host_${index} __asm__(\"${symbol}\") __attribute__((visibility(\"hidden\")));\n")
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
#else
#define DSV4_READ_ONLY \".section .rodata\"
#endif
__asm__(DSV4_READ_ONLY \"\\n.balign 64\\ndsv4_bytes_${NAME}:\\n.incbin \\\"${IMAGE}\\\"\\n.text\");

extern \"C\" {

extern const std::byte dsv4_bytes_${NAME}[] __attribute__((visibility(\"hidden\")));
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
