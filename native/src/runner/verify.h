// Outputs against those expected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/tensor.h"

namespace etscope {

struct Verdict {
  std::string method;
  size_t index = 0;
  bool passed = true;
  /// Nothing when values cannot be compared: other shapes, a NaN on one side only.
  std::optional<double> max_abs_error = 0.0;
  std::string reason; // of a verdict that is not passed

  /// "forward case 0: passed, largest error 1.2e-07".
  std::string line() const;
};

/// |actual - expected| <= atol + rtol * |expected| for each element; NaN equals NaN.
Verdict compare(
    const std::vector<Value>& actual, const std::vector<Value>& expected, double rtol, double atol);

} // namespace etscope
