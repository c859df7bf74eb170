#include "debuggee/ticks.h"

#include "common/session.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace etscope {

namespace {

#ifdef __x86_64__

constexpr int64_t kCalibration = 1'000'000; // ns

/// Whether the counter runs at one pace in all states of power.
bool is_steady() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1U << 8) != 0;
}

const bool kSteady = is_steady();

double measure() {
  const int64_t start_ns = now_ns();
  const int64_t start = ticks_now();
  int64_t passed = 0;
  while (passed < kCalibration) {
    passed = now_ns() - start_ns;
  }
  return static_cast<double>(passed) / static_cast<double>(ticks_now() - start);
}

#endif

} // namespace

#ifdef __x86_64__

int64_t ticks_now() {
  return kSteady ? static_cast<int64_t>(__rdtsc()) : now_ns();
}

int64_t ns_of_ticks(int64_t ticks) {
  static const double scale = kSteady ? measure() : 1.0;
  return static_cast<int64_t>(static_cast<double>(ticks) * scale);
}

#else // others' clocks are cheap enough

int64_t ticks_now() {
  return now_ns();
}

int64_t ns_of_ticks(int64_t ticks) {
  return ticks;
}

#endif

} // namespace etscope
