// Who takes the memory of a run: what the runtime is given, and what delegates and kernels take.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/event_tracer.h>

#include "common/process_memory.h"

namespace etscope {

/// Owners of bytes that go through the meter's hands, so that they are counted as they are asked
/// for: parts of the program that the loader has read, and the runtime's allocators.
enum class Owner {
  kProgram,
  kConstants,
  kDelegate,
  kNamed,
  kExternal,
  kMethod,
  kPlanned,
  kTemporary
};
constexpr size_t kOwners = 8;
const char* name_of(Owner owner);

/// Bytes of each owner, in its order.
using Tally = std::array<int64_t, kOwners>;

/// The process at the end of a part of a run: "start", "program", "load", "inputs", "execution".
struct Phase {
  std::string name;
  std::string method; // "" for what is of none
  Tally tally{};
  std::optional<Heap> heap;
  std::optional<Mappings> mappings;
  std::optional<int64_t> peak; // resident, at most while it lasted
};

/// The making of one delegate.
struct DelegateInit {
  std::string method;
  size_t segment = 0; // of the program, with its data
  std::string backend;
  std::optional<int64_t> growth; // of malloc's, without what the tally counts
  std::optional<int64_t> peak; // resident
};

/// All executions of one instruction.
struct InstructionMemory {
  int64_t executions = 0;
  std::optional<int64_t> first; // growth of malloc's in the first one
  std::optional<int64_t> later; // and in those after it
  int64_t temporary = 0; // the most that the temporary allocator gave
  std::optional<int64_t> peak; // resident, in the first one
};

/// Follows the memory of one session. What it makes must not outlive it.
class MemoryMeter {
 public:
  MemoryMeter();

  /// Where a loader has its bytes from: the program's file or a .ptd file, of which it makes
  /// copies, or memory that is there anyway.
  enum class Source { kProgramFile, kDataFile, kMemory };
  std::unique_ptr<executorch::runtime::DataLoader> watch(
      std::unique_ptr<executorch::runtime::DataLoader> loader, Source source);
  std::unique_ptr<executorch::extension::MallocMemoryAllocator> allocator(Owner owner);
  std::unique_ptr<executorch::runtime::EventTracer> tracer();

  void add(Owner owner, int64_t bytes);

  /// Ends a phase.
  void end_phase(const std::string& name, const std::string& method);

  /// What is loaded and executed from now on is of that method.
  void begin_method(const std::string& method);

  using Key = std::tuple<std::string, int64_t, int64_t>; // method, chain, instruction
  const std::vector<Phase>& phases() const {
    return phases_;
  }
  const std::vector<DelegateInit>& inits() const {
    return inits_;
  }
  const std::map<Key, InstructionMemory>& instructions() const {
    return instructions_;
  }

  /// The most that was resident in any phase, in bytes.
  std::optional<int64_t> peak() const;

  /// For what this makes: a delegate is about to be made; an instruction begins and ends.
  void begin_init(size_t segment, const char* backend);
  void begin_instruction();
  void end_instruction(int64_t chain, int64_t instruction);

 private:
  /// Bytes of malloc's that are of nobody who is counted.
  std::optional<int64_t> uncounted() const;
  void end_init();
  /// The peak since this was last asked; a part of it in the phase's.
  std::optional<int64_t> take_peak();

  std::array<std::atomic<int64_t>, kOwners> tally_{};
  std::atomic<int64_t> temporary_peak_{0};
  std::string method_;
  std::vector<Phase> phases_;
  std::vector<DelegateInit> inits_;
  std::map<Key, InstructionMemory> instructions_;
  bool in_init_ = false;
  bool peaks_ = false;
  std::optional<int64_t> before_; // uncounted, when the delegate or instruction began
  std::optional<int64_t> phase_peak_;
};

} // namespace etscope
