#include "debuggee/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/failure.h"
#include "common/tensor.h"

namespace etscope {

using executorch::aten::BFloat16;
using executorch::aten::Half;
using executorch::aten::Tensor;

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Sums and counts are made of blocks: it keeps the rounding error of long sums small, and lets
// counters have 32 bits.
constexpr size_t kBlock = 4096;

template <typename T>
constexpr bool kIsFloating =
    std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <typename T>
struct Elements {
  const T* data;
  size_t count;
};

/// Calls `f` with the elements, as the type that they have; false for types without numbers.
template <typename F>
bool visit(const Tensor& tensor, F f) {
  const auto call = [&](auto zero) {
    using T = decltype(zero);
    const size_t count =
        tensor.const_data_ptr() == nullptr ? 0 : static_cast<size_t>(tensor.numel());
    f(Elements<T>{static_cast<const T*>(tensor.const_data_ptr()), count});
    return true;
  };
  switch (tensor.scalar_type()) {
    case ScalarType::Byte:
    case ScalarType::Bool: // any byte but 0 would be undefined behaviour as a bool
      return call(uint8_t{});
    case ScalarType::Char:
      return call(int8_t{});
    case ScalarType::Short:
      return call(int16_t{});
    case ScalarType::Int:
      return call(int32_t{});
    case ScalarType::Long:
      return call(int64_t{});
    case ScalarType::UInt16:
      return call(uint16_t{});
    case ScalarType::UInt32:
      return call(uint32_t{});
    case ScalarType::UInt64:
      return call(uint64_t{});
    case ScalarType::Half:
      return call(Half{});
    case ScalarType::BFloat16:
      return call(BFloat16{});
    case ScalarType::Float:
      return call(float{});
    case ScalarType::Double:
      return call(double{});
    default:
      return false;
  }
}

/// How many elements `holds` for.
template <typename T, typename F>
uint64_t count_if(const Elements<T>& elements, F holds) {
  uint64_t total = 0;
  for (size_t first = 0; first < elements.count; first += kBlock) {
    const T* data = elements.data + first;
    const size_t count = std::min(kBlock, elements.count - first);
    uint32_t found = 0;
    for (size_t i = 0; i < count; ++i) {
      found += holds(data[i]) ? 1 : 0;
    }
    total += found;
  }
  return total;
}

template <typename T>
double number(T element) {
  if constexpr (kIsFloating<T> && sizeof(T) == 2) {
    return static_cast<float>(element);
  } else {
    return static_cast<double>(element);
  }
}

template <typename T>
uint64_t count_nan(const Elements<T>& elements) {
  if constexpr (kIsFloating<T>) {
    return count_if(elements, [](T element) {
      const auto value = static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(element);
      return value != value;
    });
  }
  return 0;
}

template <typename T>
uint64_t count_inf(const Elements<T>& elements) {
  if constexpr (kIsFloating<T>) {
    using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
    return count_if(elements, [](T element) {
      return std::abs(static_cast<Wide>(element)) == std::numeric_limits<Wide>::infinity();
    });
  }
  return 0;
}

// Compared as floats where they are, which is faster: with the float next to the bound.

template <typename T>
uint64_t count_below(const Elements<T>& elements, double bound) {
  if constexpr (kIsFloating<T> && sizeof(T) < sizeof(double)) {
    float limit = static_cast<float>(bound);
    limit = limit < bound ? std::nextafter(limit, HUGE_VALF) : limit;
    return count_if(elements, [=](T element) { return static_cast<float>(element) < limit; });
  }
  return count_if(elements, [=](T element) { return number(element) < bound; });
}

template <typename T>
uint64_t count_above(const Elements<T>& elements, double bound) {
  if constexpr (kIsFloating<T> && sizeof(T) < sizeof(double)) {
    float limit = static_cast<float>(bound);
    limit = limit > bound ? std::nextafter(limit, -HUGE_VALF) : limit;
    return count_if(elements, [=](T element) { return static_cast<float>(element) > limit; });
  }
  return count_if(elements, [=](T element) { return number(element) > bound; });
}

/// The sum of f of each finite element.
template <typename T, typename F>
double sum(const Elements<T>& elements, F f) {
  double total = 0;
  for (size_t first = 0; first < elements.count; first += kBlock) {
    const size_t end = std::min(first + kBlock, elements.count);
    double part = 0;
    for (size_t i = first; i < end; ++i) {
      const double value = number(elements.data[i]);
      part += std::isfinite(value) ? f(value) : 0.0;
    }
    total += part;
  }
  return total;
}

template <typename T>
Statistics measure(const Elements<T>& elements) {
  Statistics found;
  found.elements = elements.count;
  found.nan = count_nan(elements);
  const double infinity = std::numeric_limits<double>::infinity();
  double least = infinity;
  double greatest = -infinity;
  for (size_t i = 0; i < elements.count; ++i) {
    const double value = number(elements.data[i]);
    found.plus_inf += value == infinity ? 1 : 0;
    found.minus_inf += value == -infinity ? 1 : 0;
    least = value < least && value != -infinity ? value : least;
    greatest = value > greatest && value != infinity ? value : greatest;
  }
  const uint64_t finite = found.elements - found.nan - found.plus_inf - found.minus_inf;
  if (finite == 0) {
    found.least = found.greatest = found.mean = found.deviation = kNone;
    return found;
  }
  found.least = least;
  found.greatest = greatest;
  // Scaled, so that neither the sum nor a square is beyond a double's range.
  const double most = std::max(std::abs(least), std::abs(greatest));
  const double scale = most > 0 ? most : 1;
  const double count = static_cast<double>(finite);
  const double mean = sum(elements, [=](double value) { return value / scale; }) / count;
  const double variance = sum(elements,
                              [=](double value) {
                                const double off = value / scale - mean;
                                return off * off;
                              }) /
      count;
  found.mean = mean * scale;
  found.deviation = std::sqrt(variance) * scale;
  return found;
}

constexpr size_t kLanes = 4; // that do not wait for each other, and find room in registers
constexpr size_t kStripe = kLanes * 2 * sizeof(uint64_t);
constexpr uint64_t kOdd = 0x9E3779B97F4A7C15; // 2^64 over the golden ratio

uint64_t mix(uint64_t value) { // the finaliser of splitmix64
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
  value = (value ^ value >> 27) * 0x94D049BB133111EB;
  return value ^ value >> 31;
}

/// The halves of the product, as wyhash folds them: one multiplication for 16 bytes, which is as
/// fast as the memory.
uint64_t fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

/// A constant for each lane and for each use of it.
constexpr uint64_t secret(size_t i) {
  return kOdd * (2 * i + 1);
}

void add_stripes(uint64_t* lanes, const uint8_t* data, size_t stripes) {
  uint64_t states[kLanes]; // where nobody else writes
  std::memcpy(states, lanes, sizeof(states));
  for (; stripes > 0; --stripes, data += kStripe) {
    uint64_t words[2 * kLanes];
    std::memcpy(words, data, kStripe);
    for (size_t i = 0; i < kLanes; ++i) {
      states[i] = fold(words[2 * i] ^ states[i], words[2 * i + 1] ^ secret(i));
    }
  }
  std::memcpy(lanes, states, sizeof(states));
}

uint64_t hash(const uint8_t* data, size_t size, uint64_t seed) {
  uint64_t lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) {
    lanes[i] = seed ^ secret(kLanes + i);
  }
  add_stripes(lanes, data, size / kStripe);
  if (size % kStripe > 0) {
    uint8_t rest[kStripe] = {};
    std::memcpy(rest, data + size / kStripe * kStripe, size % kStripe);
    add_stripes(lanes, rest, 1);
  }
  const uint64_t all = fold(lanes[0] ^ secret(2 * kLanes), lanes[1] ^ secret(2 * kLanes + 1)) ^
      fold(lanes[2] ^ secret(2 * kLanes + 2), lanes[3] ^ secret(2 * kLanes + 3)) ^ seed;
  return mix(all);
}

} // namespace

Statistics statistics_of(const Tensor& tensor) {
  if (tensor.nbytes() > 0 && tensor.const_data_ptr() == nullptr) {
    throw Failure(kBadInput, "the tensor has no memory now");
  }
  Statistics found;
  if (!visit(tensor, [&](const auto& elements) { found = measure(elements); })) {
    throw Failure(kBadInput, "no statistics of tensors of " + name_of(tensor.scalar_type()));
  }
  return found;
}

uint64_t count_nan(const Tensor& tensor) {
  uint64_t count = 0;
  visit(tensor, [&](const auto& elements) { count = count_nan(elements); });
  return count;
}

uint64_t count_inf(const Tensor& tensor) {
  uint64_t count = 0;
  visit(tensor, [&](const auto& elements) { count = count_inf(elements); });
  return count;
}

uint64_t count_below(const Tensor& tensor, double bound) {
  uint64_t count = 0;
  visit(tensor, [&](const auto& elements) { count = count_below(elements, bound); });
  return count;
}

uint64_t count_above(const Tensor& tensor, double bound) {
  uint64_t count = 0;
  visit(tensor, [&](const auto& elements) { count = count_above(elements, bound); });
  return count;
}

uint64_t fingerprint(const Tensor& tensor) {
  uint64_t seed = static_cast<uint64_t>(tensor.scalar_type());
  for (const auto size : tensor.sizes()) {
    seed = (seed ^ static_cast<uint64_t>(size)) * kOdd;
    seed ^= seed >> 32;
  }
  const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  return hash(data, data == nullptr ? 0 : tensor.nbytes(), seed);
}

} // namespace etscope
