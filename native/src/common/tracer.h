// The event tracer: upstream's, without what makes it fail or lose what it was told.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>

#include "common/widen.h"

namespace etscope {

using executorch::runtime::ChainID;
using executorch::runtime::DebugHandle;
using executorch::runtime::DelegateDebugIntId;
using executorch::runtime::EventTracerEntry;
using executorch::runtime::EventTracerFilterBase;

/// An ETDumpGen with these differences:
///
/// - The bundled input index reaches the dump.
/// - Tensors of types that a dump cannot hold are logged in a wider type or left out, and kinds of
///   values that it cannot hold are left out; ETDumpGen leaves a malformed dump, or aborts.
/// - Delegates' tensors are logged at the level "intermediate outputs" only.
/// - Allocations are logged, if asked for.
/// - Values of instructions can be filtered, not only those of delegates.
class Tracer : public executorch::etdump::ETDumpGen {
 public:
  using Tensor = executorch::aten::Tensor;
  using TensorList = executorch::runtime::ArrayRef<Tensor>;
  using Logged = executorch::runtime::Result<bool>;

  /// The index that following executions have in the dump; -1 for none.
  void set_input_index(int index);

  /// From now on blocks announce the two allocators, whose allocations they hold.
  void track_allocations();

  /// From now on an instruction's values are logged only if the filter keeps the name of its kernel
  /// or its number. As for ETDumpGen's own filter, true drops them.
  void set_value_filter(EventTracerFilterBase* filter) {
    value_filter_ = filter;
  }

  void create_event_block(const char* name) override;

  EventTracerEntry start_profiling(
      const char* name, ChainID chain, DebugHandle debug_handle) override;

  Logged log_evalue(
      const executorch::runtime::EValue& value,
      executorch::runtime::LoggedEValueType type) override;

  Logged log_intermediate_output_delegate(
      const char* name, DelegateDebugIntId id, const Tensor& output) override;
  Logged log_intermediate_output_delegate(
      const char* name, DelegateDebugIntId id, TensorList output) override;
  Logged log_intermediate_output_delegate(
      const char* name, DelegateDebugIntId id, const int& output) override;
  Logged log_intermediate_output_delegate(
      const char* name, DelegateDebugIntId id, const bool& output) override;
  Logged log_intermediate_output_delegate(
      const char* name, DelegateDebugIntId id, const double& output) override;

  /// An allocator of the runtime's: of methods, or of what kernels need while they run.
  enum class Arena { kMethod, kTemporary };
  void log_allocation(Arena arena, size_t size);

 private:
  using Wider = std::vector<std::unique_ptr<Widened>>;

  bool logs_intermediate_outputs();

  bool drops_values();

  /// The tensor as it can be logged, kept alive by `wider`; whether there is such a tensor.
  bool make_loggable(Tensor& tensor, Wider& wider);

  void say_left_out(const std::string& what);

  EventTracerFilterBase* value_filter_ = nullptr;
  std::string kernel_;
  bool tracks_allocations_ = false;
  int allocators_[2] = {-1, -1};
  std::set<std::string> said_;
};

/// The runtime's allocator, which tells the tracer what it allocates.
class TrackingAllocator : public executorch::extension::MallocMemoryAllocator {
 public:
  TrackingAllocator(Tracer& tracer, Tracer::Arena arena) : tracer_(tracer), arena_(arena) {}

  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override {
    tracer_.log_allocation(arena_, size);
    return MallocMemoryAllocator::allocate(size, alignment);
  }

 private:
  Tracer& tracer_;
  const Tracer::Arena arena_;
};

} // namespace etscope
