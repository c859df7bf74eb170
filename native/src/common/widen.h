// Tensors of types that an ETDump cannot hold, as tensors of a type that it can.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <executorch/runtime/core/exec_aten/exec_aten.h>

namespace etscope {

/// Whether ETDumpGen logs tensors of that type. Of others it leaves a malformed dump.
bool is_loggable(executorch::aten::ScalarType type);

/// A copy of a tensor with every value in a wider type: float16 and bfloat16 in float32, uint32
/// and uint64 in int64.
class Widened {
 public:
  /// Nothing when there is no wider type, or when a value does not fit into it.
  static std::unique_ptr<Widened> of(const executorch::aten::Tensor& tensor);

  executorch::aten::Tensor tensor() {
    return executorch::aten::Tensor(&impl_);
  }

 private:
  Widened(
      const executorch::aten::Tensor& tensor,
      executorch::aten::ScalarType type,
      std::vector<uint8_t> bytes);

  std::vector<uint8_t> bytes_;
  std::vector<executorch::aten::SizesType> sizes_;
  std::vector<executorch::aten::DimOrderType> dim_order_;
  std::vector<executorch::aten::StridesType> strides_;
  executorch::aten::TensorImpl impl_;
};

} // namespace etscope
