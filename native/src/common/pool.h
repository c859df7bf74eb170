// Memory of a fixed size, as builds for microcontrollers give the runtime: no malloc behind it.
#pragma once

#include <cstdint>
#include <string>

#include <executorch/runtime/core/memory_allocator.h>

#include "common/input_file.h"

namespace etscope {

/// The bytes of a pool: they must be there before its allocator is.
struct PoolMemory {
  explicit PoolMemory(size_t size);

  AlignedBytes bytes;
  /// 16 after a page, so that it is aligned to 16 and to no more: `aligned(16)` promises no more.
  uint8_t* base;
};

class Pool final : private PoolMemory, public executorch::runtime::MemoryAllocator {
 public:
  Pool(std::string name, uint32_t size);

  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override;

  const std::string& name() const {
    return name_;
  }

  /// The most bytes that were taken at once, with the padding between them.
  size_t peak() const {
    return peak_;
  }

  /// The largest alignment that was asked for.
  size_t alignment() const {
    return alignment_;
  }

 private:
  const std::string name_;
  size_t peak_ = 0;
  size_t alignment_ = 1;
};

/// What the first allocation that did not fit asked for, in words; "" when all of them did.
const std::string& pool_failure();

} // namespace etscope
