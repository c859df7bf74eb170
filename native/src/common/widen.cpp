#include "common/widen.h"

#include <cstring>
#include <limits>
#include <utility>

namespace etscope {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;

namespace {

/// Every value in the type To; no bytes when one does not fit.
template <typename From, typename To>
bool convert(const Tensor& tensor, std::vector<uint8_t>& bytes) {
  const auto count = static_cast<size_t>(tensor.numel());
  const auto* from = static_cast<const From*>(tensor.const_data_ptr());
  bytes.resize(count * sizeof(To));
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<From, uint64_t>) {
      if (from[i] > static_cast<uint64_t>(std::numeric_limits<To>::max())) {
        return false;
      }
    }
    const To value = static_cast<To>(from[i]);
    std::memcpy(&bytes[i * sizeof(To)], &value, sizeof(To));
  }
  return true;
}

} // namespace

bool is_loggable(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Short:
    case ScalarType::Int:
    case ScalarType::Long:
    case ScalarType::Float:
    case ScalarType::Double:
    case ScalarType::Bool:
    case ScalarType::Bits16:
    case ScalarType::UInt16:
      return true;
    default:
      return false;
  }
}

std::unique_ptr<Widened> Widened::of(const Tensor& tensor) {
  std::vector<uint8_t> bytes;
  ScalarType wider = ScalarType::Float;
  bool exact = false;
  switch (tensor.scalar_type()) {
    case ScalarType::Half:
      exact = convert<executorch::aten::Half, float>(tensor, bytes);
      break;
    case ScalarType::BFloat16:
      exact = convert<executorch::aten::BFloat16, float>(tensor, bytes);
      break;
    case ScalarType::UInt32:
      wider = ScalarType::Long;
      exact = convert<uint32_t, int64_t>(tensor, bytes);
      break;
    case ScalarType::UInt64:
      wider = ScalarType::Long;
      exact = convert<uint64_t, int64_t>(tensor, bytes);
      break;
    default:
      break;
  }
  return exact ? std::unique_ptr<Widened>(new Widened(tensor, wider, std::move(bytes))) : nullptr;
}

Widened::Widened(const Tensor& tensor, ScalarType type, std::vector<uint8_t> bytes)
    : bytes_(std::move(bytes)),
      sizes_(tensor.sizes().begin(), tensor.sizes().end()),
      dim_order_(tensor.dim_order().begin(), tensor.dim_order().end()),
      strides_(tensor.strides().begin(), tensor.strides().end()),
      impl_(
          type,
          static_cast<ssize_t>(sizes_.size()),
          sizes_.data(),
          bytes_.data(),
          dim_order_.data(),
          strides_.data()) {}

} // namespace etscope
