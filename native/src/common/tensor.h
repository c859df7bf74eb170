// Tensors of our own: what comes from files, what goes to them, and what the runtime is handed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>

namespace etscope {

using executorch::aten::DimOrderType;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::StridesType;

/// torch's name of a type: "float32". An unknown one gets a name that says its number.
std::string name_of(ScalarType type);

std::optional<ScalarType> type_named(const std::string& name);

/// The type of that number in ExecuTorch's files, if there is one that a file may hold.
std::optional<ScalarType> type_numbered(int number);

/// Bytes of an element, or of the unit that packs several.
size_t element_size(ScalarType type);

/// Elements of a tensor; nothing when the product is beyond any memory.
std::optional<size_t> count_elements(const std::vector<SizesType>& sizes);

/// Bytes of a tensor; nothing when they are beyond any memory.
std::optional<size_t> count_bytes(ScalarType type, const std::vector<SizesType>& sizes);

/// 0, 1, 2, …
std::vector<DimOrderType> default_dim_order(size_t dimensions);

bool is_permutation(const std::vector<DimOrderType>& order, size_t dimensions);

/// Elements dense in memory in the order of dimensions `dim_order`, outermost first.
struct HostTensor {
  ScalarType type = ScalarType::Float;
  std::vector<SizesType> sizes;
  std::vector<DimOrderType> dim_order;
  std::vector<uint8_t> bytes;

  std::vector<StridesType> strides() const;

  /// The same values, dense in another order of dimensions.
  HostTensor in_order(const std::vector<DimOrderType>& order) const;

  /// "float32 [1, 3, 16, 16]".
  std::string describe() const;
};

/// "float32 [1, 3, 16, 16]".
std::string describe_tensor(ScalarType type, const std::vector<SizesType>& sizes);

struct Nothing {};

/// An input or an output of a method.
using Value = std::variant<Nothing, int64_t, double, bool, std::string, HostTensor>;

/// A copy of what the runtime holds; throws for kinds of values that no file can hold.
/// `what` names it: "output 0 of 'forward'".
Value copy_of(const executorch::runtime::EValue& value, const std::string& what);

} // namespace etscope
