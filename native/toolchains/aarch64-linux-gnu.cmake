# Cross build for Linux on aarch64, with Debian's or Ubuntu's cross compiler: the package
# g++-aarch64-linux-gnu, or one of a version, which -DETSCOPE_GCC_VERSION=12 names.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(ETSCOPE_GCC_VERSION "" CACHE STRING "version in the compiler's name: 12 for -g++-12")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ETSCOPE_GCC_VERSION)
set(_suffix "")
if(ETSCOPE_GCC_VERSION)
  set(_suffix "-${ETSCOPE_GCC_VERSION}")
endif()
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc${_suffix})
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++${_suffix})

# Programs of this machine, headers and libraries of the other one; CMAKE_PREFIX_PATH is as it is.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
