// What the numbers of a tensor are like, without sending them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <executorch/runtime/core/exec_aten/exec_aten.h>

namespace etscope {

/// least to deviation: of the finite elements, NaN where there are none.
struct Statistics {
  uint64_t elements = 0;
  uint64_t nan = 0;
  uint64_t plus_inf = 0;
  uint64_t minus_inf = 0;
  double least = 0;
  double greatest = 0;
  double mean = 0;
  double deviation = 0;
};

/// Throws a Failure for types without numbers.
Statistics statistics_of(const executorch::aten::Tensor& tensor);

/// How many elements are NaN (or infinite, below, above a bound); 0 for types that have none.
uint64_t count_nan(const executorch::aten::Tensor& tensor);
uint64_t count_inf(const executorch::aten::Tensor& tensor);
uint64_t count_below(const executorch::aten::Tensor& tensor, double bound);
uint64_t count_above(const executorch::aten::Tensor& tensor, double bound);

/// A fingerprint of the tensor's bytes, sizes and type, at the speed of memory.
uint64_t fingerprint(const executorch::aten::Tensor& tensor);

} // namespace etscope
