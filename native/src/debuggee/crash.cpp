#include "debuggee/crash.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <utility>

#include "common/platform.h"

namespace etscope {

namespace {

constexpr size_t kStackBytes = 1 << 20; // last words build a dump
constexpr unsigned kSeconds = 10;

struct Ending {
  int signal;
  const char* name;
};
constexpr std::array<Ending, 5> kEndings = {{
    {SIGSEGV, "SIGSEGV"},
    {SIGBUS, "SIGBUS"},
    {SIGFPE, "SIGFPE"},
    {SIGILL, "SIGILL"},
    {SIGABRT, "SIGABRT"},
}};

using LastWords = std::function<void(const std::string&)>;

/// Never destroyed: a crash may come while the process ends.
LastWords& last_words() {
  static LastWords& words = *new LastWords;
  return words;
}

std::atomic<long> speaker{0}; // the thread that speaks or has spoken

const char* name_of(int signal) {
  for (const Ending& ending : kEndings) {
    if (ending.signal == signal) {
      return ending.name;
    }
  }
  return "a signal";
}

/// Ends the process in time, whatever the last words do.
void set_deadline() {
  std::signal(SIGALRM, SIG_DFL);
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
  alarm(kSeconds);
}

void speak(const char* reason) noexcept {
  const long me = syscall(SYS_gettid);
  long nobody = 0;
  if (!speaker.compare_exchange_strong(nobody, me)) {
    while (speaker != me) { // another thread speaks, and ends the process
      pause();
    }
    return; // speaking crashed
  }
  set_deadline();
  try {
    if (last_words()) {
      last_words()(reason);
    }
  } catch (...) { // there is nobody left to tell
  }
}

void handle(int signal) {
  speak(name_of(signal));
  raise(signal);
}

/// A stack of its own, because it may be the stack that there is no more of.
void set_stack() {
  void* memory =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) {
    stack_t stack = {};
    stack.ss_sp = memory;
    stack.ss_size = kStackBytes;
    sigaltstack(&stack, nullptr);
  }
}

} // namespace

void on_crash(std::function<void(const std::string&)> words) {
  last_words() = std::move(words);
  static bool handled = false;
  if (std::exchange(handled, true)) {
    return;
  }
  before_giving_up([] { speak("the runtime aborted"); });
  set_stack();
  struct sigaction action = {};
  action.sa_handler = handle;
  // Reset: what has destroyed the memory may make this crash, too, again and again.
  action.sa_flags = SA_ONSTACK | SA_NODEFER | SA_RESETHAND;
  for (const Ending& ending : kEndings) {
    sigaction(ending.signal, &action, nullptr);
  }
}

} // namespace etscope
