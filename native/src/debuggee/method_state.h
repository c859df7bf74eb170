// What the instructions of a method change, to be saved and brought back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <executorch/runtime/core/span.h>

#include "common/session.h"
#include "debuggee/internals.h"

namespace etscope {

/// A method at one moment.
struct Snapshot {
  struct TensorState {
    void* data;
    ssize_t elements;
  };

  internals::Position position{};
  std::vector<executorch::runtime::EValue> values;
  std::vector<TensorState> tensors;
  std::vector<executorch::aten::SizesType> sizes; // of all tensors, one behind the other
  std::vector<executorch::aten::StridesType> strides;
  std::vector<executorch::aten::DimOrderType> dim_orders;
  std::vector<std::vector<uint8_t>> memory;

  size_t bytes() const;
};

/// The state of a method: its values, its tensors, and all memory that they may be in.
class MethodState {
 public:
  /// `memory`: what always belongs to it.
  MethodState(internals::Method& method, std::vector<Region> memory);

  Snapshot take() const;

  /// Region that was added after the snapshot was taken gets the bytes that it was added with.
  void restore(const Snapshot& snapshot);

  /// Region that belongs to the state from now on, with the bytes that it has.
  void add(Region memory);

  /// Whether all of that memory belongs to the state.
  bool holds(const void* data, size_t size) const;

  /// Brings back what was added, and forgets it.
  void drop_added();

 private:
  struct Added {
    Region memory;
    std::vector<uint8_t> bytes;
  };

  internals::Method& method_;
  std::vector<executorch::aten::TensorImpl*> tensors_;
  std::vector<Region> memory_;
  std::vector<Added> added_;
};

} // namespace etscope
