#include "debuggee/method_state.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace etscope {

using executorch::aten::TensorImpl;
using executorch::runtime::EValue;

namespace {

template <typename T, typename Array>
void append(std::vector<T>& all, const Array& array) {
  all.insert(all.end(), array.begin(), array.end());
}

/// Writes as many as the array has; `at` is behind them then. The runtime's own arrays are mutable.
template <typename T, typename Array>
void put_back(const T*& at, const Array& array) {
  std::copy_n(at, array.size(), const_cast<T*>(array.data()));
  at += array.size();
}

std::vector<uint8_t> bytes_of(const Region& memory) {
  return {memory.begin(), memory.end()};
}

void write(const Region& memory, const std::vector<uint8_t>& bytes) {
  if (!bytes.empty()) {
    std::memcpy(memory.data(), bytes.data(), bytes.size());
  }
}

} // namespace

size_t Snapshot::bytes() const {
  size_t all = values.size() * sizeof(EValue) + tensors.size() * sizeof(TensorState) +
      sizes.size() * sizeof(sizes[0]) + strides.size() * sizeof(strides[0]) + dim_orders.size();
  for (const auto& part : memory) {
    all += part.size();
  }
  return all;
}

MethodState::MethodState(internals::Method& method, std::vector<Region> memory)
    : method_(method), memory_(std::move(memory)) {
  std::set<TensorImpl*> found;
  EValue* values = internals::values(method_);
  for (size_t i = 0; i < internals::value_count(method_); ++i) {
    if (values[i].isTensor()) {
      found.insert(values[i].toTensor().unsafeGetTensorImpl());
    }
  }
  tensors_.assign(found.begin(), found.end());
}

Snapshot MethodState::take() const {
  Snapshot taken;
  taken.position = internals::position(method_);
  const EValue* values = internals::values(method_);
  taken.values.assign(values, values + internals::value_count(method_));
  for (const TensorImpl* tensor : tensors_) {
    taken.tensors.push_back({tensor->mutable_data(), tensor->numel()});
    append(taken.sizes, tensor->sizes());
    append(taken.strides, tensor->strides());
    append(taken.dim_orders, tensor->dim_order());
  }
  for (const Region& memory : memory_) {
    taken.memory.push_back(bytes_of(memory));
  }
  for (const Added& added : added_) {
    taken.memory.push_back(bytes_of(added.memory));
  }
  return taken;
}

void MethodState::restore(const Snapshot& snapshot) {
  internals::position(method_) = snapshot.position;
  std::copy(snapshot.values.begin(), snapshot.values.end(), internals::values(method_));
  const auto* sizes = snapshot.sizes.data();
  const auto* strides = snapshot.strides.data();
  const auto* dim_orders = snapshot.dim_orders.data();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TensorImpl& tensor = *tensors_[i];
    tensor.set_data(snapshot.tensors[i].data);
    internals::element_count(tensor) = snapshot.tensors[i].elements;
    put_back(sizes, tensor.sizes());
    put_back(strides, tensor.strides());
    put_back(dim_orders, tensor.dim_order());
  }
  for (size_t i = 0; i < memory_.size(); ++i) {
    write(memory_[i], snapshot.memory[i]);
  }
  for (size_t i = 0; i < added_.size(); ++i) {
    const size_t at = memory_.size() + i;
    write(added_[i].memory, at < snapshot.memory.size() ? snapshot.memory[at] : added_[i].bytes);
  }
}

void MethodState::add(Region memory) {
  added_.push_back({memory, bytes_of(memory)});
}

bool MethodState::holds(const void* data, size_t size) const {
  const auto* first = static_cast<const uint8_t*>(data);
  const auto in = [=](const Region& memory) {
    return first >= memory.begin() && first + size <= memory.end();
  };
  return std::any_of(memory_.begin(), memory_.end(), in) ||
      std::any_of(
             added_.begin(), added_.end(), [&](const Added& added) { return in(added.memory); });
}

void MethodState::drop_added() {
  for (const Added& added : added_) {
    write(added.memory, added.bytes);
  }
  added_.clear();
}

} // namespace etscope
