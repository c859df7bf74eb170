// A program in the runtime, and its methods.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor_ptr.h>

#include "common/bundle.h"
#include "common/input_file.h"
#include "common/memory_meter.h"
#include "common/options.h"
#include "common/pool.h"
#include "common/tensor.h"
#include "common/tracer.h"

namespace etscope {

/// Now, in ns, by a clock that never goes back.
int64_t now_ns();

/// Values that a method takes, and the memory that they have.
struct Inputs {
  std::vector<Value> held; // what the tensors have their bytes in
  std::vector<executorch::extension::TensorPtr> tensors;
  std::vector<executorch::runtime::EValue> values;
};

using Region = executorch::runtime::Span<uint8_t>;

/// The memory of a method's plan, zeros at first. The last buffer is `shared` if that is given,
/// which must outlive it.
struct Arenas {
  explicit Arenas(const std::vector<size_t>& sizes, AlignedBytes* shared = nullptr);

  std::vector<AlignedBytes> buffers;
  std::vector<Region> memory;
  std::optional<executorch::runtime::HierarchicalAllocator> allocator;
};

/// A method that is loaded. It keeps the memory of its inputs and outputs.
class LoadedMethod {
 public:
  LoadedMethod(std::string name, executorch::extension::Method& method);

  const std::string& name() const {
    return name_;
  }
  executorch::extension::Method& method() const {
    return method_;
  }
  size_t input_count() const;

  /// Throws when the method does not take values of that kind; changes nothing.
  Inputs make_inputs(const std::vector<Value>& values) const;

  /// Gives the method its inputs, which must outlive the execution: those without planned memory
  /// are used where they are. Throws when it does not take them, and may have taken some.
  void feed(const Inputs& inputs);

  /// The values that following executions take; throws when the method does not take them.
  void set_inputs(const std::vector<Value>& values);

  /// Memory of outputs that the program's memory plan leaves out.
  const std::vector<AlignedBytes>& output_memory() const {
    return output_memory_;
  }

  /// What it takes, made from a seed.
  std::vector<Value> generate_inputs(uint64_t seed) const;

  /// Feeds the inputs and executes; the ns that executing took.
  int64_t execute();

  /// Copies of the outputs of the last execution.
  std::vector<Value> outputs() const;

 private:
  Value fit(const Value& value, size_t index) const;
  std::string input_name(size_t index) const;
  void give_outputs_memory();

  const std::string name_;
  executorch::extension::Method& method_;
  Inputs inputs_;
  std::vector<AlignedBytes> output_memory_;
};

class Session {
 public:
  /// Reads the program and what belongs to it.
  explicit Session(const Options& options);

  /// Loads a method that is not loaded yet; "" is the one that a program is run by.
  LoadedMethod& method(const std::string& name);

  /// Loads all methods of the calls that share mutable buffers, before one of them runs: loading
  /// another one later would set buffers that have an initial value back to it.
  void load_sharing(const std::vector<CallOptions>& calls);

  /// The method as it is right after loading. What `method` gave before is gone, and so is the
  /// state of methods that share buffers with it. `planned` is the memory of its plan, which must
  /// outlive it; null: the session's.
  LoadedMethod& fresh_method(
      const std::string& name, executorch::runtime::HierarchicalAllocator* planned = nullptr);

  /// Bytes of each buffer of the method's memory plan.
  std::vector<size_t> planned_sizes(const std::string& name) const;

  /// The cases of a bundled program, else null.
  const Bundle* bundle() const {
    return bundle_ ? &*bundle_ : nullptr;
  }

  /// Null when nothing is recorded.
  Tracer* tracer() const {
    return tracer_;
  }

  /// Null when memory is not measured.
  MemoryMeter* meter() {
    return meter_ ? &*meter_ : nullptr;
  }

  /// The pools that stand in for malloc; none when they do not.
  const std::vector<const Pool*>& pools() const {
    return pools_;
  }

  int64_t load_ns() const {
    return load_ns_;
  }

 private:
  std::string resolve(const std::string& name) const;
  bool shares_state(const std::string& name) const;
  void unload(const std::string& name);
  LoadedMethod& load(const std::string& name, executorch::runtime::HierarchicalAllocator* planned);
  void open(const Options& options);
  std::unique_ptr<executorch::runtime::DataLoader> program_loader(const std::string& path);
  /// Bytes of a method's plan, without those that it shares with other methods.
  size_t own_planned_size(const std::string& name) const;
  /// Tells the meter, if there is one, of planned memory: that there is, or was.
  void count_planned(size_t size, int64_t sign);
  /// The memory of a method's plan, in the method's pool; zeros.
  executorch::runtime::HierarchicalAllocator* planned_in_pool(const std::string& name);

  std::optional<MemoryMeter> meter_; // what the module has of it goes first
  AlignedBytes file_;
  std::optional<Bundle> bundle_;
  std::optional<AlignedBytes> program_copy_;
  std::optional<AlignedBytes> shared_; // mutable buffers of all methods that share them
  std::map<std::string, Arenas> arenas_; // of the methods that do
  std::vector<Region> regions_in_pool_;
  std::optional<executorch::runtime::HierarchicalAllocator> planned_in_pool_;
  std::unique_ptr<executorch::extension::Module> module_;
  std::vector<const Pool*> pools_; // the module owns them
  Pool* planned_pool_ = nullptr; // the one that has planned buffers, too
  Tracer* tracer_ = nullptr; // the module owns it
  std::vector<std::unique_ptr<LoadedMethod>> methods_;
  int64_t load_ns_ = 0;
};

} // namespace etscope
