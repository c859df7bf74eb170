// Inputs made up from a seed, the same as those that etscope makes in Python.
#pragma once

#include <cstdint>

#include "common/tensor.h"

namespace etscope {

/// Input number `input` of a method: floats in [-1, 1), bool, uint8 and int8 all that there are,
/// other integers 0 or 1. Element i in row-major order depends on the seed, `input` and i only.
HostTensor generate_tensor(
    ScalarType type, const std::vector<SizesType>& sizes, uint64_t seed, size_t input);

} // namespace etscope
