// What is written to a run's values, now and when it comes there again.

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/failure.h"
#include "debuggee/execution.h"

namespace etscope {

using executorch::aten::Tensor;
using executorch::runtime::EValue;

void Execution::write(uint32_t index, Value given) {
  check_begun();
  check_fits(index, given);
  if (failed_) {
    const uint64_t here = step_;
    if (stand_at(here, nullptr).step != here) {
      throw Failure(kRuntimeFailed, "the run does not come here again");
    }
    check_fits(index, given);
  }
  if (auto* written = std::get_if<HostTensor>(&given)) {
    const Tensor& target = tensor(index);
    *written = written->in_order({target.dim_order().begin(), target.dim_order().end()});
    if (!written->bytes.empty() && !state_.holds(target.const_data_ptr(), target.nbytes())) {
      auto* constant = static_cast<uint8_t*>(target.mutable_data_ptr());
      state_.add({constant, target.nbytes()});
    }
  }
  forget_from(step_);
  checkpoints_.drop_from(step_);
  const auto same = [&](const Patch& patch) { return patch.step == step_ && patch.index == index; };
  patches_.erase(std::remove_if(patches_.begin(), patches_.end(), same), patches_.end());
  patches_.push_back({step_, index, std::move(given)});
  apply(patches_.back());
}

void Execution::check_fits(uint32_t index, const Value& given) const {
  const EValue& own = value(index);
  const std::string name = "value " + std::to_string(index);
  if (!own.isScalar() && !own.isNone() && !own.isTensor()) {
    throw Failure(kBadInput, name + " is a string or a list, which cannot be written");
  }
  const bool same_kind = (own.isInt() && std::holds_alternative<int64_t>(given)) ||
      (own.isDouble() && std::holds_alternative<double>(given)) ||
      (own.isBool() && std::holds_alternative<bool>(given)) ||
      (own.isNone() && std::holds_alternative<Nothing>(given)) ||
      (own.isTensor() && std::holds_alternative<HostTensor>(given));
  if (!same_kind) {
    throw Failure(kBadInput, name + " is not of the kind of what is written");
  }
  if (!own.isTensor()) {
    return;
  }
  const Tensor& target = tensor(index);
  const auto& written = std::get<HostTensor>(given);
  const std::vector<SizesType> sizes(target.sizes().begin(), target.sizes().end());
  if (written.type != target.scalar_type() || written.sizes != sizes) {
    throw Failure(
        kBadInput,
        name + " is " + describe_tensor(target.scalar_type(), sizes) + ", not " +
            written.describe());
  }
  if (written.bytes.size() != target.nbytes()) {
    throw Failure(
        kBadInput,
        name + " has " + std::to_string(target.nbytes()) + " bytes, not " +
            std::to_string(written.bytes.size()));
  }
}

/// What was written at this step, which is a difference if it does not fit any more.
void Execution::apply_patches() {
  for (const Patch& patch : patches_) {
    if (patch.step == step_ && !apply(patch)) {
      tell({step_, step_ > 0 ? history_.where(step_ - 1) : Location(), patch.index});
    }
  }
}

bool Execution::apply(const Patch& patch) {
  EValue& target = values_[patch.index];
  if (const auto* given = std::get_if<HostTensor>(&patch.value)) {
    if (!target.isTensor()) {
      return false;
    }
    const Tensor& tensor = target.toTensor();
    const bool fits = tensor.nbytes() == given->bytes.size() &&
        (given->bytes.empty() || tensor.const_data_ptr() != nullptr);
    if (fits && !given->bytes.empty()) {
      std::memcpy(tensor.mutable_data_ptr(), given->bytes.data(), given->bytes.size());
      if (trace_ != nullptr) { // it holds what is read from now on
        trace_->replace(tensor.const_data_ptr(), given->bytes);
      }
    }
    return fits;
  }
  if (const auto* integer = std::get_if<int64_t>(&patch.value)) {
    target = EValue(*integer);
  } else if (const auto* real = std::get_if<double>(&patch.value)) {
    target = EValue(*real);
  } else if (const auto* flag = std::get_if<bool>(&patch.value)) {
    target = EValue(*flag);
  }
  return true;
}

} // namespace etscope
