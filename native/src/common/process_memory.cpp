#include "common/process_memory.h"

#include <fcntl.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

#include "common/platform.h"

namespace etscope {

namespace {

constexpr int64_t kKiB = 1024;

/// One mapping: where it is, and what its first line says.
struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  char mode[5] = "";
  char name[64] = "";

  bool is_anonymous() const {
    return name[0] == '\0' || std::strncmp(name, "[heap]", 6) == 0 ||
        std::strncmp(name, "[anon:", 6) == 0;
  }
};

bool parse_mapping(const char* line, Mapping& found) {
  Mapping one;
  const int fields = std::sscanf(
      line,
      "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %63[^\n]",
      &one.begin,
      &one.end,
      one.mode,
      one.name);
  if (fields < 3) {
    return false;
  }
  found = one;
  return true;
}

} // namespace

#if defined(__GLIBC__) && (__GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 33))

std::optional<Heap> heap_now() {
  const auto info = mallinfo2();
  // What it has in mappings of their own (hblkhd) is in use as a whole.
  return Heap{
      static_cast<int64_t>(info.uordblks + info.hblkhd),
      static_cast<int64_t>(info.arena + info.hblkhd)};
}

#else

std::optional<Heap> heap_now() {
  return std::nullopt;
}

#endif

std::optional<Mappings> mappings_now() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(
      std::fopen("/proc/self/smaps", "r"), std::fclose);
  if (file == nullptr) {
    return std::nullopt;
  }
  Mappings total;
  Mapping mapping;
  bool is_stack = false;
  char line[512];
  while (std::fgets(line, sizeof(line), file.get()) != nullptr) {
    const Mapping before = mapping;
    int64_t kib = 0;
    if (parse_mapping(line, mapping)) {
      // The stack of a thread is right above a page that nobody may touch.
      is_stack = std::strcmp(mapping.name, "[stack]") == 0 ||
          (mapping.name[0] == '\0' && before.end == mapping.begin &&
           std::strncmp(before.mode, "---p", 4) == 0);
    } else if (std::sscanf(line, "Size: %" SCNd64 " kB", &kib) == 1) {
      // What may not be touched belongs to nobody yet.
      const bool counts = !is_stack && mapping.is_anonymous() && mapping.mode[1] == 'w';
      total.reserved += counts ? kib * kKiB : 0;
    } else if (std::sscanf(line, "Rss: %" SCNd64 " kB", &kib) == 1) {
      total.resident += kib * kKiB;
      int64_t& kind = is_stack     ? total.stacks
          : mapping.is_anonymous() ? total.anonymous
                                   : total.files;
      kind += kib * kKiB;
    }
  }
  return total;
}

bool reset_peak() {
  const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (file < 0) {
    return false;
  }
  const bool done = write(file, "5", 1) == 1;
  close(file);
  return done;
}

std::optional<int64_t> peak_now() {
  return memory_now().peak;
}

} // namespace etscope
