# SPDX-License-Identifier: Apache-2.0
# CUDA sources without NVIDIA's runtime: nvcc compiles each to an image (a fat binary), and the C++ compiler compiles
# the same file's host part. A third source, written here, holds the image's bytes and says which function of the host
# stands for which kernel of the image (lib/device/kernel_image.h): a kernel that the host's part lacks is an error of
# the linker.

# dsv4_image_command(OUTPUT OF SOURCE FLAG...): a file that nvcc makes of a source, with the include directories and
# definitions of the target OF.
function(dsv4_image_command output of source)
  set(includes "$<TARGET_PROPERTY:${of},INCLUDE_DIRECTORIES>")
  set(definitions "$<TARGET_PROPERTY:${of},COMPILE_DEFINITIONS>")
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_CUDA_FLAGS}")
  set(host_compiler)
  if(CMAKE_CUDA_HOST_COMPILER)
    set(host_compiler -ccbin=${CMAKE_CUDA_HOST_COMPILER})
  endif()
  file(RELATIVE_PATH shown ${PROJECT_BINARY_DIR} ${output})
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_CUDA_COMPILER_LAUNCHER} ${CMAKE_CUDA_COMPILER} -c ${ARGN} ${host_compiler} -std=c++20 ${flags}
            ${DSV4_CUDA_OPTIONS} "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>"
            "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},;-D>>" $<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-DNDEBUG>
            -MD -MF ${output}.d -MT ${output} -o ${output} ${source}
    DEPENDS ${source} DEPFILE ${output}.d
    COMMENT "Building CUDA image ${shown}" COMMAND_EXPAND_LISTS VERBATIM)
endfunction()

# dsv4_cuda_sources(TARGET SOURCE...): adds CUDA sources to a target. REQUIRES: no target of this folder has these
# sources by CMake's language CUDA.
function(dsv4_cuda_sources target)
  set(host ${PROJECT_SOURCE_DIR}/kernels/sm12x/host)
  foreach(source ${ARGN})
    string(REGEX REPLACE "\\.cu$" "" name "${source}")
    string(MAKE_C_IDENTIFIER "${name}" name)
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    set(image ${CMAKE_CURRENT_BINARY_DIR}/images/${name}.fatbin)
    set(table ${CMAKE_CURRENT_BINARY_DIR}/images/${name}.cc)
    if(DSV4_CUDA_IMAGES_OF)
      file(RELATIVE_PATH image ${PROJECT_BINARY_DIR} ${image})
      set(image ${DSV4_CUDA_IMAGES_OF}/${image})
    else()
      dsv4_image_command(${image} ${target} ${path} -fatbin ${DSV4_CUDA_IMAGE_FLAGS})
    endif()
    set(script ${PROJECT_SOURCE_DIR}/cmake/WriteKernelImage.cmake)
    add_custom_command(OUTPUT ${table}
                       COMMAND ${CMAKE_COMMAND} -DIMAGE=${image} -DNAME=${name} -DOUT=${table} -DWINDOWS=${WIN32}
                               -P ${script}
                       DEPENDS ${image} ${script} VERBATIM)
    # Kernels are empty there, and told apart by their addresses: they must not be merged. Warnings are nvcc's.
    set_source_files_properties(${source} PROPERTIES LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
      "-I${host};-include;${host}/device.h;-DDSV4_KERNEL_IMAGE=dsv4_image_${name};-O1;-fno-strict-aliasing;-w")
    set_source_files_properties(${table} PROPERTIES SKIP_PRECOMPILE_HEADERS ON OBJECT_DEPENDS ${image})
    target_sources(${target} PRIVATE ${source} ${table})
    set_property(TARGET ${target} APPEND PROPERTY DSV4_IMAGES ${image})
  endforeach()
endfunction()
