#include "common/generate.h"

#include <cstring>

#include "common/failure.h"

namespace etscope {

namespace {

/// The finaliser of splitmix64.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

/// 24 random bits as a number of [-1, 1), exact in float32.
float unit(uint64_t x) {
  return static_cast<float>(x >> 40) * 0x1p-23f - 1.0f;
}

template <typename T, typename Make>
void fill(HostTensor& tensor, uint64_t base, Make make) {
  for (size_t i = 0; i < tensor.bytes.size() / sizeof(T); ++i) {
    const T value = static_cast<T>(make(mix(base + (i + 1) * 0x9E3779B97F4A7C15)));
    std::memcpy(&tensor.bytes[i * sizeof(T)], &value, sizeof(T));
  }
}

uint64_t top_bit(uint64_t x) {
  return x >> 63;
}

uint64_t top_byte(uint64_t x) {
  return x >> 56;
}

} // namespace

HostTensor generate_tensor(
    ScalarType type, const std::vector<SizesType>& sizes, uint64_t seed, size_t input) {
  HostTensor tensor{type, sizes, default_dim_order(sizes.size()), {}};
  const auto size = count_bytes(type, sizes);
  if (!size) {
    throw Failure(kBadInput, "a tensor " + tensor.describe() + " is too large");
  }
  tensor.bytes.resize(*size);
  const uint64_t base = mix(seed + (input + 1) * 0xD1B54A32D192ED03);
  switch (type) {
    case ScalarType::Float:
    case ScalarType::ComplexFloat: // the real part, the imaginary one: a number each
      fill<float>(tensor, base, unit);
      break;
    case ScalarType::Double:
    case ScalarType::ComplexDouble:
      fill<double>(tensor, base, unit);
      break;
    case ScalarType::Half:
      fill<executorch::aten::Half>(tensor, base, unit);
      break;
    case ScalarType::BFloat16:
      fill<executorch::aten::BFloat16>(tensor, base, unit);
      break;
    case ScalarType::Bool:
      fill<uint8_t>(tensor, base, top_bit);
      break;
    case ScalarType::Byte:
    case ScalarType::Char:
      fill<uint8_t>(tensor, base, top_byte);
      break;
    case ScalarType::Short:
    case ScalarType::UInt16:
      fill<uint16_t>(tensor, base, top_bit);
      break;
    case ScalarType::Int:
    case ScalarType::UInt32:
      fill<uint32_t>(tensor, base, top_bit);
      break;
    case ScalarType::Long:
    case ScalarType::UInt64:
      fill<uint64_t>(tensor, base, top_bit);
      break;
    default:
      throw Failure(
          kBadInput,
          "no values can be generated for input " + std::to_string(input) + ", a tensor of " +
              name_of(type) + "; give it by --input");
  }
  return tensor;
}

} // namespace etscope
