// A program in the runtime, and its methods.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor_ptr.h>

#include "common/bundle.h"
#include "common/input_file.h"
#include "common/options.h"
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

  /// The method as it is right after loading. What `method` gave before is gone. `planned` is the
  /// memory of its plan, which must outlive it; null: the runtime's own.
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

  int64_t load_ns() const {
    return load_ns_;
  }

 private:
  std::string resolve(const std::string& name) const;
  LoadedMethod& load(const std::string& name, executorch::runtime::HierarchicalAllocator* planned);
  void open(const Options& options);

  AlignedBytes file_;
  std::optional<Bundle> bundle_;
  std::optional<AlignedBytes> program_copy_;
  std::unique_ptr<executorch::extension::Module> module_;
  Tracer* tracer_ = nullptr; // the module owns it
  std::vector<std::unique_ptr<LoadedMethod>> methods_;
  int64_t load_ns_ = 0;
};

} // namespace etscope
