#include "common/pool.h"

#include <algorithm>
#include <iostream>
#include <utility>

namespace etscope {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBaseAlignment = 16;
constexpr size_t kSlack = 64; // kernels' vector units read over the end

/// Here and not in a pool, for what ends the process in the middle of a kernel.
std::string& failure() {
  static std::string text;
  return text;
}

} // namespace

PoolMemory::PoolMemory(size_t size) : bytes(size + kPage + kBaseAlignment + kSlack) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  base = bytes.data() + ((kPage - address % kPage) % kPage) + kBaseAlignment;
}

Pool::Pool(std::string name, uint32_t size)
    : PoolMemory(size), MemoryAllocator(size, base), name_(std::move(name)) {}

void* Pool::allocate(size_t size, size_t alignment) {
  void* memory = MemoryAllocator::allocate(size, alignment);
  if (memory == nullptr && failure().empty()) {
    failure() = "the " + name_ + " pool is too small: " + std::to_string(size) +
        " bytes asked for (aligned to " + std::to_string(alignment) + "), " +
        std::to_string(free_size()) + " of " + std::to_string(this->size()) + " left";
    std::cerr << failure() << std::endl; // now: what follows may be a crash
  }
  alignment_ = std::max(alignment_, alignment);
  peak_ = std::max(peak_, used_size());
  return memory;
}

const std::string& pool_failure() {
  return failure();
}

} // namespace etscope
