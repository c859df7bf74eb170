#include "common/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/failure.h"

namespace etscope {

using executorch::aten::Tensor;
using executorch::runtime::EValue;

namespace {

struct TypeEntry {
  ScalarType type;
  const char* name;
  size_t size;
};

// The types that ExecuTorch's files can hold.
constexpr std::array<TypeEntry, 25> kTypes = {{
    {ScalarType::Byte, "uint8", 1},
    {ScalarType::Char, "int8", 1},
    {ScalarType::Short, "int16", 2},
    {ScalarType::Int, "int32", 4},
    {ScalarType::Long, "int64", 8},
    {ScalarType::Half, "float16", 2},
    {ScalarType::Float, "float32", 4},
    {ScalarType::Double, "float64", 8},
    {ScalarType::ComplexFloat, "complex64", 8},
    {ScalarType::ComplexDouble, "complex128", 16},
    {ScalarType::Bool, "bool", 1},
    {ScalarType::QInt8, "qint8", 1},
    {ScalarType::QUInt8, "quint8", 1},
    {ScalarType::QInt32, "qint32", 4},
    {ScalarType::BFloat16, "bfloat16", 2},
    {ScalarType::QUInt4x2, "quint4x2", 1},
    {ScalarType::QUInt2x4, "quint2x4", 1},
    {ScalarType::Bits16, "bits16", 2},
    {ScalarType::Float8_e5m2, "float8_e5m2", 1},
    {ScalarType::Float8_e4m3fn, "float8_e4m3fn", 1},
    {ScalarType::Float8_e5m2fnuz, "float8_e5m2fnuz", 1},
    {ScalarType::Float8_e4m3fnuz, "float8_e4m3fnuz", 1},
    {ScalarType::UInt16, "uint16", 2},
    {ScalarType::UInt32, "uint32", 4},
    {ScalarType::UInt64, "uint64", 8},
}};

const TypeEntry* find(ScalarType type) {
  const auto found = std::find_if(
      kTypes.begin(), kTypes.end(), [&](const TypeEntry& entry) { return entry.type == type; });
  return found == kTypes.end() ? nullptr : &*found;
}

template <typename T>
std::vector<StridesType> strides_of(const std::vector<SizesType>& sizes, const T& dim_order) {
  std::vector<StridesType> strides(sizes.size());
  StridesType step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[dim_order[i]] = step;
    step *= std::max<SizesType>(sizes[dim_order[i]], 1);
  }
  return strides;
}

HostTensor copy_of_tensor(const Tensor& tensor, const std::string& what) {
  HostTensor copy;
  copy.type = tensor.scalar_type();
  copy.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  copy.dim_order.assign(tensor.dim_order().begin(), tensor.dim_order().end());
  const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  if (data == nullptr && tensor.nbytes() > 0) {
    throw Failure(kRuntimeFailed, what + " has no memory");
  }
  if (tensor.nbytes() > 0) {
    copy.bytes.assign(data, data + tensor.nbytes());
  }
  return copy;
}

} // namespace

std::string name_of(ScalarType type) {
  const TypeEntry* entry = find(type);
  return entry != nullptr ? entry->name : "type " + std::to_string(static_cast<int>(type));
}

std::optional<ScalarType> type_named(const std::string& name) {
  for (const TypeEntry& entry : kTypes) {
    if (name == entry.name) {
      return entry.type;
    }
  }
  return std::nullopt;
}

std::optional<ScalarType> type_numbered(int number) {
  const auto type = static_cast<ScalarType>(number);
  return find(type) != nullptr ? std::optional(type) : std::nullopt;
}

size_t element_size(ScalarType type) {
  const TypeEntry* entry = find(type);
  if (entry == nullptr) {
    throw Failure(kBadInput, "tensors of " + name_of(type) + " cannot be read or written");
  }
  return entry->size;
}

std::optional<size_t> count_elements(const std::vector<SizesType>& sizes) {
  uint64_t product = 1;
  for (const SizesType size : sizes) {
    if (size < 0 || __builtin_mul_overflow(product, static_cast<uint64_t>(size), &product) ||
        product > INT64_MAX / 16) {
      return std::nullopt;
    }
  }
  return static_cast<size_t>(product);
}

std::optional<size_t> count_bytes(ScalarType type, const std::vector<SizesType>& sizes) {
  const auto elements = count_elements(sizes);
  if (!elements) {
    return std::nullopt;
  }
  const size_t packed = type == ScalarType::QUInt4x2 ? 2 : (type == ScalarType::QUInt2x4 ? 4 : 1);
  return (*elements + packed - 1) / packed * element_size(type);
}

std::vector<DimOrderType> default_dim_order(size_t dimensions) {
  std::vector<DimOrderType> order(dimensions);
  for (size_t i = 0; i < dimensions; ++i) {
    order[i] = static_cast<DimOrderType>(i);
  }
  return order;
}

bool is_permutation(const std::vector<DimOrderType>& order, size_t dimensions) {
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  return sorted == default_dim_order(dimensions);
}

std::vector<StridesType> HostTensor::strides() const {
  return strides_of(sizes, dim_order);
}

HostTensor HostTensor::in_order(const std::vector<DimOrderType>& order) const {
  HostTensor result{type, sizes, order, bytes};
  const auto from = strides();
  const auto to = result.strides();
  const auto elements = count_elements(sizes).value_or(0);
  const size_t width = element_size(type);
  if (from == to || elements * width != bytes.size()) { // packed types have no order to change
    return result;
  }
  std::vector<SizesType> index(sizes.size(), 0);
  for (size_t i = 0; i < elements; ++i) {
    int64_t source = 0;
    int64_t target = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      source += int64_t{index[d]} * from[d];
      target += int64_t{index[d]} * to[d];
    }
    std::memcpy(&result.bytes[target * width], &bytes[source * width], width);
    for (size_t d = index.size(); d-- > 0 && ++index[d] == sizes[d];) {
      index[d] = 0;
    }
  }
  return result;
}

std::string HostTensor::describe() const {
  return describe_tensor(type, sizes);
}

std::string describe_tensor(ScalarType type, const std::vector<SizesType>& sizes) {
  std::string text = name_of(type) + " [";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return text + "]";
}

Value copy_of(const EValue& value, const std::string& what) {
  if (value.isNone()) {
    return Nothing{};
  }
  if (value.isInt()) {
    return value.toInt();
  }
  if (value.isDouble()) {
    return value.toDouble();
  }
  if (value.isBool()) {
    return value.toBool();
  }
  if (value.isString()) {
    return std::string(value.toString());
  }
  if (value.isTensor()) {
    return copy_of_tensor(value.toTensor(), what);
  }
  throw Failure(kRuntimeFailed, what + " is a list, which cannot be written");
}

} // namespace etscope
