#include "common/bundle.h"

#include <cstring>

#include "common/failure.h"

namespace etscope {

namespace {

// Slots of the schema's tables, and members of its union of values.
enum BundleSlot : unsigned { kSuites = 1, kProgram = 2 };
enum SuiteSlot : unsigned { kMethod = 0, kCases = 1 };
enum CaseSlot : unsigned { kInputs = 0, kExpected = 1 };
enum ValueSlot : unsigned { kKind = 0, kContent = 1 };
enum TensorSlot : unsigned { kScalarType = 0, kSizes = 1, kData = 2, kDimOrder = 3 };
enum Kind : uint8_t { kTensor = 1, kInt = 2, kBool = 3, kDouble = 4 };

} // namespace

bool Bundle::is_bundle(const uint8_t* data, size_t size) {
  return size >= 8 && std::memcmp(data + 4, "BP08", 4) == 0;
}

Bundle::Bundle(const uint8_t* data, size_t size, const std::string& path)
    : buffer_(data, size, path + ": not a valid bundled program"), path_(path) {}

Span Bundle::program() const {
  const Span span = buffer_.root().blob(kProgram);
  if (span.size == 0) {
    throw Failure(kBadInput, path_ + ": the bundle holds no program");
  }
  return span;
}

size_t Bundle::case_count(const std::string& method) const {
  const FlatTable root = buffer_.root();
  for (size_t i = 0; i < root.table_count(kSuites); ++i) {
    const FlatTable suite = root.table_at(kSuites, i);
    if (suite.string(kMethod) == method) {
      return suite.table_count(kCases);
    }
  }
  return 0;
}

FlatTable Bundle::test_case(const std::string& method, size_t index) const {
  const FlatTable root = buffer_.root();
  for (size_t i = 0; i < root.table_count(kSuites); ++i) {
    const FlatTable suite = root.table_at(kSuites, i);
    if (suite.string(kMethod) != method) {
      continue;
    }
    const size_t count = suite.table_count(kCases);
    if (index >= count) {
      throw Failure(
          kBadInput,
          path_ + ": no test case " + std::to_string(index) + " for method '" + method +
              "', which has " + std::to_string(count));
    }
    return suite.table_at(kCases, index);
  }
  throw Failure(kBadInput, path_ + ": no test cases for method '" + method + "'");
}

// Counted before anything is copied: a small file can repeat a large tensor very often.
void Bundle::check_count(
    const std::string& method, size_t index, const char* what, size_t found, size_t count) const {
  if (found != count) {
    throw Failure(
        kBadInput,
        path_ + ": test case " + std::to_string(index) + " of method '" + method + "' has " +
            std::to_string(found) + " " + what + ", the method has " + std::to_string(count));
  }
}

std::vector<Value> Bundle::inputs(const std::string& method, size_t index, size_t count) const {
  const FlatTable found = test_case(method, index);
  check_count(method, index, "inputs", found.table_count(kInputs), count);
  return values(found, kInputs);
}

std::vector<Value> Bundle::expected(const std::string& method, size_t index, size_t count) const {
  const FlatTable found = test_case(method, index);
  check_count(method, index, "expected outputs", found.table_count(kExpected), count);
  return values(found, kExpected);
}

std::vector<Value> Bundle::values(const FlatTable& test_case, unsigned slot) const {
  std::vector<Value> result;
  for (size_t i = 0; i < test_case.table_count(slot); ++i) {
    result.push_back(value(test_case.table_at(slot, i)));
  }
  return result;
}

Value Bundle::value(const FlatTable& table) const {
  const auto kind = table.number<uint8_t>(kKind);
  const auto content = table.table(kContent);
  if (!content || kind < kTensor || kind > kDouble) {
    buffer_.fail("unknown kind of value " + std::to_string(kind), table.position());
  }
  switch (kind) {
    case kTensor:
      return tensor(*content);
    case kInt:
      return content->number<int64_t>(0);
    case kBool:
      return content->number<uint8_t>(0) != 0;
    default:
      return content->number<double>(0);
  }
}

HostTensor Bundle::tensor(const FlatTable& table) const {
  const auto number = table.number<int8_t>(kScalarType);
  const auto type = type_numbered(number);
  if (!type) {
    buffer_.fail("unknown scalar type " + std::to_string(number), table.position());
  }
  HostTensor result;
  result.type = *type;
  result.sizes = table.numbers<SizesType>(kSizes);
  result.dim_order = table.numbers<DimOrderType>(kDimOrder);
  if (result.sizes.size() > 255) {
    buffer_.fail("a tensor of too many dimensions", table.position());
  }
  if (result.dim_order.empty()) {
    result.dim_order = default_dim_order(result.sizes.size());
  }
  if (!is_permutation(result.dim_order, result.sizes.size())) {
    buffer_.fail("an order of dimensions that is none", table.position());
  }
  const Span data = table.blob(kData);
  if (count_bytes(*type, result.sizes) != data.size) {
    buffer_.fail(
        "a tensor " + result.describe() + " with " + std::to_string(data.size) + " bytes",
        table.position());
  }
  const uint8_t* bytes = buffer_.at(data);
  result.bytes.assign(bytes, bytes + data.size);
  return result;
}

} // namespace etscope
