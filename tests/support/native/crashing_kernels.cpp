// Kernels that kill their process, each in its way.
#include <thread>

#include <executorch/runtime/kernel/kernel_runtime_context.h>
#include <executorch/runtime/kernel/operator_registry.h>

using executorch::runtime::EValue;
using executorch::runtime::Kernel;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::Span;

namespace {

volatile int* volatile nowhere = reinterpret_cast<int*>(8);

__attribute__((noinline)) int deep(volatile char* before) {
  volatile char page[4096];
  page[0] = before == nullptr ? 0 : before[0];
  return deep(page) + page[1];
}

void write_nowhere(KernelRuntimeContext&, Span<EValue*>) {
  *nowhere = 1;
}

void write_nowhere_in_a_thread(KernelRuntimeContext&, Span<EValue*>) {
  std::thread([] { *nowhere = 1; }).join();
}

void use_all_stack(KernelRuntimeContext&, Span<EValue*>) {
  deep(nullptr);
}

void trap(KernelRuntimeContext&, Span<EValue*>) {
  __builtin_trap();
}

Kernel kernels[] = {
    Kernel("crashing::nowhere.out", write_nowhere),
    Kernel("crashing::thread.out", write_nowhere_in_a_thread),
    Kernel("crashing::stack.out", use_all_stack),
    Kernel("crashing::trap.out", trap),
};
const auto registered = executorch::runtime::register_kernels({kernels, 4});

} // namespace
