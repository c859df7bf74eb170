// What the memory of this process is: by kind of mapping, and what malloc has of it.
#pragma once

#include <cstdint>
#include <optional>

namespace etscope {

/// Bytes that malloc handed out and that were not freed, and bytes that it has from the system.
struct Heap {
  int64_t used = 0;
  int64_t held = 0;
};

/// Nothing where the C library does not tell: glibc 2.33 and newer do.
std::optional<Heap> heap_now();

/// Bytes of this process by kind of mapping.
struct Mappings {
  int64_t resident = 0;
  int64_t files = 0; // resident: code and data of libraries, files that are mapped
  int64_t stacks = 0; // resident: of all threads
  int64_t anonymous = 0; // resident: what malloc has, and other memory without a file
  int64_t reserved = 0; // of the anonymous: with the pages that were never touched
};

/// Nothing where there is no /proc/self/smaps (Linux and Android have it).
std::optional<Mappings> mappings_now();

/// From now on the peak is that of what follows; false where it cannot be reset.
bool reset_peak();

/// The most that was resident since the last reset, in bytes.
std::optional<int64_t> peak_now();

} // namespace etscope
