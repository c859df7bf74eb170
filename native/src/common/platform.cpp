#include "common/platform.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <utility>

#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#include "common/failure.h"
#include "common/output_file.h"

#ifdef ETSCOPE_HAS_THREADPOOL
// threadpool.h is not in the Python package; these are the two classes' public members used here.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(uint32_t new_thread_count);
};
ThreadPool* get_threadpool();
} // namespace executorch::extension::threadpool
#endif

namespace etscope {

namespace {

constexpr size_t kLogLimit = 64 << 10;

void (*giving_up)() = nullptr;

struct Log {
  std::mutex mutex;
  bool kept = false;
  std::string text;
};

/// Never destroyed: threads of the runtime's may log until the process ends.
Log& log() {
  static Log& all = *new Log;
  return all;
}

void keep(const char* message) {
  const std::lock_guard<std::mutex> lock(log().mutex);
  if (!log().kept) {
    return;
  }
  std::string& text = log().text;
  text.append(message).append("\n");
  if (text.size() > kLogLimit) {
    text.erase(0, text.size() - kLogLimit);
  }
}

std::string& activity() {
  static std::string text = "starting";
  return text;
}

/// Lines about files of Linux that some kernels do not have, and about what was asked for.
bool says_nothing(const char* filename, const char* message) {
  return std::strstr(filename, "cpuinfo_utils") != nullptr ||
      std::strncmp(message, "Resetting threadpool", 20) == 0;
}

void emit_log_message(
    et_timestamp_t,
    et_pal_log_level_t,
    const char* filename,
    const char*,
    size_t line,
    const char* message,
    size_t) {
  if (!says_nothing(filename, message)) {
    std::fprintf(stderr, "[%s:%zu] %s\n", filename, line, message);
    keep(message);
  }
}

/// The runtime aborts on what it takes for a programmer's mistake, which a bad program can cause.
void give_up() {
  if (giving_up != nullptr) {
    giving_up();
  }
  OutputFile::abandon_all();
  std::fprintf(stderr, "%s: the runtime gave up while %s\n", program_name(), activity().c_str());
  std::fflush(nullptr);
  _exit(kRuntimeFailed);
}

} // namespace

void init_runtime() {
  executorch::runtime::register_pal(
      executorch::runtime::PalImpl::create(
          nullptr, give_up, nullptr, nullptr, emit_log_message, nullptr, nullptr, __FILE__));
  executorch::runtime::runtime_init();
}

void keep_log() {
  const std::lock_guard<std::mutex> lock(log().mutex);
  log().kept = true;
}

std::string take_log() {
  const std::lock_guard<std::mutex> lock(log().mutex);
  return std::exchange(log().text, "");
}

void before_giving_up(void (*hook)()) {
  giving_up = hook;
}

void set_activity(const std::string& text) {
  activity() = text;
}

#ifdef ETSCOPE_HAS_THREADPOOL

void set_threads(uint32_t threads) {
  auto* pool = executorch::extension::threadpool::get_threadpool();
  if (pool == nullptr || !pool->_unsafe_reset_threadpool(threads)) {
    throw Failure(
        kRuntimeFailed, "the runtime's pool cannot have " + std::to_string(threads) + " threads");
  }
}

std::optional<size_t> thread_count() {
  auto* pool = executorch::extension::threadpool::get_threadpool();
  return pool == nullptr ? std::nullopt : std::optional(pool->get_thread_count());
}

#else

void set_threads(uint32_t) {
  throw Failure(kUsage, "--threads: this runner was built without a thread pool");
}

std::optional<size_t> thread_count() {
  return std::nullopt;
}

#endif

Memory memory_now() {
  Memory found;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "VmRSS: %" SCNd64 " kB", &kib) == 1) {
      found.resident = kib * 1024;
    } else if (std::sscanf(line.c_str(), "VmHWM: %" SCNd64 " kB", &kib) == 1) {
      found.peak = kib * 1024;
    }
  }
  return found;
}

void load_library(const std::string& path) {
  // A name without a slash would be looked for in the system's folders.
  const std::string found = path.find('/') == std::string::npos ? "./" + path : path;
  if (dlopen(found.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw Failure(kBadInput, std::string("--library ") + path + ": " + dlerror());
  }
}

} // namespace etscope
