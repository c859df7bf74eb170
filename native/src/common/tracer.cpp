#include "common/tracer.h"

#include <utility>

#include "common/failure.h"
#include "common/tensor.h"

namespace etscope {

using executorch::etdump::ETDumpGen;
using executorch::runtime::BoxedEvalueList;
using executorch::runtime::EValue;
using executorch::runtime::EventTracerDebugLogLevel;
using executorch::runtime::LoggedEValueType;
using executorch::runtime::Tag;

namespace {

// ETDumpGen writes a private member that shadows the one set_bundled_input_index sets. Only an
// explicit instantiation may name a private member, hence the detour over a friend.
int& index_of(ETDumpGen& dump);

template <auto Member>
struct Private {
  friend int& index_of(ETDumpGen& dump) {
    return dump.*Member;
  }
};

template struct Private<&ETDumpGen::bundled_input_index_>;

constexpr char kKernelCall[] = "native_call_"; // before the name in a kernel's event

const char* kind_of(Tag tag) {
  switch (tag) {
    case Tag::String:
      return "a string";
    case Tag::ListBool:
    case Tag::ListDouble:
    case Tag::ListInt:
    case Tag::ListScalar:
      return "a list of numbers";
    case Tag::ListOptionalTensor:
      return "a list of optional tensors";
    default:
      return "a value of an unknown kind";
  }
}

} // namespace

void Tracer::set_input_index(int index) {
  index_of(*this) = index;
}

void Tracer::track_allocations() {
  tracks_allocations_ = true;
}

// Allocators belong to a block and must be announced right after it was opened, which the runtime
// does inside load_method and execute. It logs no allocations itself.
void Tracer::create_event_block(const char* name) {
  ETDumpGen::create_event_block(name);
  if (tracks_allocations_) {
    allocators_[static_cast<int>(Arena::kMethod)] =
        static_cast<int>(track_allocator("MethodAllocator"));
    allocators_[static_cast<int>(Arena::kTemporary)] =
        static_cast<int>(track_allocator("TemporaryAllocator"));
  }
}

void Tracer::log_allocation(Arena arena, size_t size) {
  const int id = allocators_[static_cast<int>(arena)];
  if (id >= 0) {
    track_allocation(static_cast<executorch::runtime::AllocatorID>(id), size);
  }
}

EventTracerEntry Tracer::start_profiling(
    const char* name, ChainID chain, DebugHandle debug_handle) {
  if (value_filter_ != nullptr) {
    kernel_ = name;
    if (kernel_.rfind(kKernelCall, 0) == 0) {
      kernel_.erase(0, sizeof(kKernelCall) - 1);
    }
  }
  return ETDumpGen::start_profiling(name, chain, debug_handle);
}

bool Tracer::drops_values() {
  if (value_filter_ == nullptr) {
    return false;
  }
  const Logged by_name =
      value_filter_->filter(kernel_.c_str(), executorch::runtime::kUnsetDelegateDebugIntId);
  const Logged by_number =
      value_filter_->filter(nullptr, static_cast<DelegateDebugIntId>(current_debug_handle()));
  return by_name.ok() && by_name.get() && by_number.ok() && by_number.get();
}

Tracer::Logged Tracer::log_evalue(const EValue& value, LoggedEValueType type) {
  if (type == LoggedEValueType::kIntermediateOutput && drops_values()) {
    return false;
  }
  Wider wider;
  switch (value.tag) {
    case Tag::Int:
    case Tag::Double:
    case Tag::Bool:
      return ETDumpGen::log_evalue(value, type);
    case Tag::Tensor: {
      Tensor tensor = value.toTensor();
      return make_loggable(tensor, wider) ? ETDumpGen::log_evalue(EValue(tensor), type)
                                          : Logged(false);
    }
    case Tag::ListTensor: {
      std::vector<EValue> values;
      for (Tensor tensor : value.toTensorList()) {
        if (!make_loggable(tensor, wider)) {
          return false;
        }
        values.emplace_back(tensor);
      }
      if (wider.empty()) {
        return ETDumpGen::log_evalue(value, type);
      }
      std::vector<EValue*> wrapped;
      std::vector<Tensor> unwrapped;
      for (EValue& one : values) {
        wrapped.push_back(&one);
        unwrapped.push_back(one.toTensor());
      }
      BoxedEvalueList<Tensor> list(
          wrapped.data(), unwrapped.data(), static_cast<int>(values.size()));
      return ETDumpGen::log_evalue(EValue(&list), type);
    }
    case Tag::None:
      return false;
    default:
      say_left_out(kind_of(value.tag));
      return false;
  }
}

bool Tracer::make_loggable(Tensor& tensor, Wider& wider) {
  if (tensor.nbytes() > 0 && tensor.const_data_ptr() == nullptr) {
    say_left_out("a tensor without memory");
    return false;
  }
  if (is_loggable(tensor.scalar_type())) {
    return true;
  }
  auto widened = Widened::of(tensor);
  if (widened == nullptr) {
    say_left_out("a tensor of " + name_of(tensor.scalar_type()));
    return false;
  }
  tensor = widened->tensor();
  wider.push_back(std::move(widened));
  return true;
}

void Tracer::say_left_out(const std::string& what) {
  const std::string where = current_chain_id() < 0
      ? "an output of the program"
      : "an output of instruction " + std::to_string(current_debug_handle()) + " of chain " +
          std::to_string(current_chain_id());
  const std::string message =
      where + " is " + what + ", which an ETDump cannot hold; it is left out";
  if (said_.insert(message).second) {
    say(message);
  }
}

// Delegates log whatever the level.
bool Tracer::logs_intermediate_outputs() {
  return event_tracer_debug_level() >= EventTracerDebugLogLevel::kIntermediateOutputs;
}

Tracer::Logged Tracer::log_intermediate_output_delegate(
    const char* name, DelegateDebugIntId id, const Tensor& output) {
  Wider wider;
  Tensor tensor = output;
  if (!logs_intermediate_outputs() || !make_loggable(tensor, wider)) {
    return false;
  }
  return ETDumpGen::log_intermediate_output_delegate(name, id, tensor);
}

Tracer::Logged Tracer::log_intermediate_output_delegate(
    const char* name, DelegateDebugIntId id, TensorList output) {
  if (!logs_intermediate_outputs()) {
    return false;
  }
  Wider wider;
  std::vector<Tensor> tensors;
  for (Tensor tensor : output) {
    if (!make_loggable(tensor, wider)) {
      return false;
    }
    tensors.push_back(tensor);
  }
  return ETDumpGen::log_intermediate_output_delegate(
      name, id, TensorList(tensors.data(), tensors.size()));
}

Tracer::Logged Tracer::log_intermediate_output_delegate(
    const char* name, DelegateDebugIntId id, const int& output) {
  return logs_intermediate_outputs() ? ETDumpGen::log_intermediate_output_delegate(name, id, output)
                                     : Logged(false);
}

Tracer::Logged Tracer::log_intermediate_output_delegate(
    const char* name, DelegateDebugIntId id, const bool& output) {
  return logs_intermediate_outputs() ? ETDumpGen::log_intermediate_output_delegate(name, id, output)
                                     : Logged(false);
}

Tracer::Logged Tracer::log_intermediate_output_delegate(
    const char* name, DelegateDebugIntId id, const double& output) {
  return logs_intermediate_outputs() ? ETDumpGen::log_intermediate_output_delegate(name, id, output)
                                     : Logged(false);
}

} // namespace etscope
