# Defines etscope_executorch: headers, definitions and libraries of the ExecuTorch that was found.
#
# Operators and backends register themselves when their library is loaded, so the linker must keep
# libraries that nobody calls.

add_library(etscope_executorch INTERFACE)
set(ETSCOPE_EXECUTORCH_LIBRARY_DIR "")
set(ETSCOPE_EXECUTORCH_VERSION "${executorch_VERSION}")
if(EXECUTORCH_BUILD_VERSION)
  # As Python tells it: "1.5.1" of "1.5.1+cpu".
  string(REGEX REPLACE "[+].*" "" ETSCOPE_EXECUTORCH_VERSION "${EXECUTORCH_BUILD_VERSION}")
endif()

if(EXECUTORCH_RUNTIME_LIBRARY_DIR)
  # The Python package. Its targets need CMake 3.28; its variables work with any.
  set(ETSCOPE_EXECUTORCH_LIBRARY_DIR "${EXECUTORCH_RUNTIME_LIBRARY_DIR}")
  if(NOT EXISTS "${EXECUTORCH_RUNTIME_LIBRARY_DIR}/libexecutorch_etdump.so")
    message(FATAL_ERROR "this package of ExecuTorch has no libexecutorch_etdump.so")
  endif()
  target_link_libraries(etscope_executorch INTERFACE ${EXECUTORCH_LIBRARIES})
  if(TARGET executorch::runtime)
    if(TARGET executorch::kernels_quantized)
      target_link_libraries(etscope_executorch INTERFACE executorch::kernels_quantized)
    endif()
  else()
    target_link_libraries(etscope_executorch INTERFACE ${EXECUTORCH_QUANTIZED_KERNELS_LIBRARY})
  endif()
  target_include_directories(etscope_executorch SYSTEM INTERFACE ${EXECUTORCH_INCLUDE_DIRS})
  target_compile_definitions(etscope_executorch INTERFACE ${EXECUTORCH_COMPILE_DEFINITIONS})
  target_link_options(etscope_executorch INTERFACE
    "LINKER:-rpath-link,${EXECUTORCH_RUNTIME_LIBRARY_DIR}")
  if(EXISTS "${EXECUTORCH_RUNTIME_LIBRARY_DIR}/libexecutorch_threadpool.so")
    target_compile_definitions(etscope_executorch INTERFACE ETSCOPE_HAS_THREADPOOL)
  endif()
else()
  # An install of a build from source: static libraries under the build's own names.
  # Needs CMake 3.24. Not tried.
  foreach(needed executorch etdump extension_tensor extension_data_loader)
    if(NOT TARGET ${needed})
      message(FATAL_ERROR "this install of ExecuTorch has no target '${needed}'; build it with "
        "EXECUTORCH_BUILD_DEVTOOLS, EXECUTORCH_ENABLE_EVENT_TRACER, "
        "EXECUTORCH_BUILD_EXTENSION_MODULE, EXECUTORCH_BUILD_EXTENSION_DATA_LOADER, "
        "EXECUTORCH_BUILD_EXTENSION_FLAT_TENSOR and EXECUTORCH_BUILD_EXTENSION_TENSOR")
    endif()
  endforeach()
  foreach(module extension_module_static extension_module)
    if(TARGET ${module})
      target_link_libraries(etscope_executorch INTERFACE ${module})
      break()
    endif()
  endforeach()
  target_link_libraries(etscope_executorch
    INTERFACE executorch etdump extension_tensor extension_data_loader)
  foreach(registered optimized_native_cpu_ops_lib portable_ops_lib quantized_ops_lib
          xnnpack_backend)
    # optimized_native_cpu_ops_lib has the portable kernels, too.
    if(TARGET ${registered} AND
       NOT (registered STREQUAL portable_ops_lib AND TARGET optimized_native_cpu_ops_lib))
      target_link_libraries(etscope_executorch
        INTERFACE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${registered}>")
    endif()
  endforeach()
  if(TARGET extension_threadpool)
    target_link_libraries(etscope_executorch INTERFACE extension_threadpool)
    target_compile_definitions(etscope_executorch INTERFACE ETSCOPE_HAS_THREADPOOL)
  endif()
  target_compile_definitions(etscope_executorch INTERFACE ET_EVENT_TRACER_ENABLED)
endif()
