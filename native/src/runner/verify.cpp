#include "runner/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

namespace etscope {

namespace {

// Holds every integer of 64 bits on the machines that have 80 or 128 bits of it.
using Number = long double;

template <typename T>
Number load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return static_cast<Number>(value);
}

using Load = Number (*)(const uint8_t*);

/// How to read an element of a type; null for a type without numbers.
Load loader_of(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
    case ScalarType::QUInt8:
    case ScalarType::Bool:
      return load<uint8_t>;
    case ScalarType::Char:
    case ScalarType::QInt8:
      return load<int8_t>;
    case ScalarType::Short:
      return load<int16_t>;
    case ScalarType::Int:
    case ScalarType::QInt32:
      return load<int32_t>;
    case ScalarType::Long:
      return load<int64_t>;
    case ScalarType::Half:
      return load<executorch::aten::Half>;
    case ScalarType::BFloat16:
      return load<executorch::aten::BFloat16>;
    case ScalarType::Float:
      return load<float>;
    case ScalarType::Double:
      return load<double>;
    case ScalarType::UInt16:
    case ScalarType::Bits16:
      return load<uint16_t>;
    case ScalarType::UInt32:
      return load<uint32_t>;
    case ScalarType::UInt64:
      return load<uint64_t>;
    default:
      return nullptr;
  }
}

std::string kind_of(const Value& value) {
  if (const auto* tensor = std::get_if<HostTensor>(&value)) {
    return tensor->describe();
  }
  static const char* const kNames[] = {"none", "int", "double", "bool", "string"};
  return kNames[value.index()];
}

class Comparison {
 public:
  Comparison(double rtol, double atol) : rtol_(rtol), atol_(atol) {}

  void outputs(const std::vector<Value>& actual, const std::vector<Value>& expected) {
    if (actual.size() != expected.size()) {
      fail(
          std::to_string(actual.size()) + " outputs where " + std::to_string(expected.size()) +
          " are expected");
      return;
    }
    for (size_t i = 0; i < actual.size(); ++i) {
      name_ = "output " + std::to_string(i);
      output(actual[i], expected[i]);
    }
  }

  Verdict verdict;

 private:
  void output(const Value& actual, const Value& expected) {
    if (kind_of(actual) != kind_of(expected)) {
      fail(name_ + " is " + kind_of(actual) + " where " + kind_of(expected) + " is expected");
    } else if (const auto* tensor = std::get_if<HostTensor>(&actual)) {
      tensors(*tensor, std::get<HostTensor>(expected));
    } else if (const auto* real = std::get_if<double>(&actual)) {
      numbers(*real, std::get<double>(expected));
    } else if (const auto* integer = std::get_if<int64_t>(&actual)) {
      numbers(*integer, std::get<int64_t>(expected));
    } else if (const auto* flag = std::get_if<bool>(&actual)) {
      numbers(*flag, std::get<bool>(expected));
    }
    finish();
  }

  void tensors(const HostTensor& actual, const HostTensor& expected) {
    const auto order = default_dim_order(actual.sizes.size());
    const auto left = actual.in_order(order).bytes;
    const auto right = expected.in_order(order).bytes;
    const Load load = loader_of(actual.type);
    if (load == nullptr) {
      if (left != right) {
        fail(name_ + " differs in its bytes; it is a " + name_of(actual.type));
      }
      return;
    }
    for (size_t at = 0; at < left.size(); at += element_size(actual.type)) {
      numbers(load(&left[at]), load(&right[at]));
    }
  }

  void numbers(Number actual, Number expected) {
    ++compared_;
    if (actual == expected || (std::isnan(actual) && std::isnan(expected))) {
      return;
    }
    const Number error = std::fabs(actual - expected);
    if (!std::isfinite(error)) {
      ++wrong_;
      verdict.max_abs_error.reset();
      return;
    }
    if (verdict.max_abs_error) {
      verdict.max_abs_error = std::max(*verdict.max_abs_error, static_cast<double>(error));
    }
    if (error > atol_ + rtol_ * std::fabs(expected)) {
      ++wrong_;
    }
  }

  void finish() {
    if (wrong_ > 0 && verdict.passed) {
      verdict.passed = false;
      verdict.reason = std::to_string(wrong_) + " of " + std::to_string(compared_) + " values of " +
          name_ + " are out of tolerance";
    }
    wrong_ = compared_ = 0;
  }

  void fail(const std::string& reason) {
    if (verdict.passed) {
      verdict.reason = reason;
    }
    verdict.passed = false;
    verdict.max_abs_error.reset();
  }

  const double rtol_;
  const double atol_;
  std::string name_;
  size_t compared_ = 0;
  size_t wrong_ = 0;
};

} // namespace

std::string Verdict::line() const {
  std::ostringstream text;
  text << method << " case " << index << ": " << (passed ? "passed" : "FAILED");
  if (!passed) {
    text << ": " << reason;
  }
  if (max_abs_error) {
    text << ", largest error " << *max_abs_error;
  }
  return text.str();
}

Verdict compare(
    const std::vector<Value>& actual,
    const std::vector<Value>& expected,
    double rtol,
    double atol) {
  Comparison comparison(rtol, atol);
  comparison.outputs(actual, expected);
  return comparison.verdict;
}

} // namespace etscope
