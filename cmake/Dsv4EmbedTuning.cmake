# SPDX-License-Identifier: Apache-2.0

# dsv4_embed_tuning(OUTPUT DIR...): writes OUTPUT, a C++ source with the tuning files DIR/*/*.json of
# all backends in this build, for BuiltinTuningFiles of kernels/builtin.h. Written anew when a file
# changes, comes or goes.
function(dsv4_embed_tuning output)
  set(files)
  if(ARGN)
    list(TRANSFORM ARGN APPEND /*/*.json)
    file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${ARGN})
  endif()
  set(items)
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
    file(READ ${PROJECT_SOURCE_DIR}/${file} json)
    string(APPEND items "    {\"${file}\", R\"json(${json})json\"},\n")
  endforeach()
  # An array may not be empty.
  string(APPEND items "    {nullptr, nullptr},\n")
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT
"// Written by cmake/Dsv4EmbedTuning.cmake.
#include \"kernels/builtin.h\"

namespace dsv4 {

absl::Span<const EmbeddedTuningFile> BuiltinTuningFiles() {
  static constexpr EmbeddedTuningFile files[] = {
@items@  };
  return absl::MakeConstSpan(files).first(std::size(files) - 1);
}

}  // namespace dsv4
")
endfunction()
