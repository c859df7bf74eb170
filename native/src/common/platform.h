// What the runtime asks of the platform: where its log goes, what it does before it gives up, and
// its threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace etscope {

/// Must come before anything else of the runtime.
void init_runtime();

/// From now on what the runtime logs is kept for take_log.
void keep_log();

/// What the runtime logged since this was last asked, a message a line; the end of it when it is
/// more than 64 KiB.
std::string take_log();

/// What is to be called when the runtime aborts, before the process ends.
void before_giving_up(void (*hook)());

/// What the process is at, for the message when the runtime ends it: "executing 'forward'".
void set_activity(const std::string& activity);

/// Gives the runtime's pool that many threads, before anything uses it.
void set_threads(uint32_t threads);

/// The size of the pool; nothing when there is no pool.
std::optional<size_t> thread_count();

/// Memory of this process in bytes: resident now, and the most so far. Nothing where /proc does not
/// tell (Linux and Android do).
struct Memory {
  std::optional<int64_t> resident;
  std::optional<int64_t> peak;
};
Memory memory_now();

/// Loads a library for what it registers.
void load_library(const std::string& path);

} // namespace etscope
