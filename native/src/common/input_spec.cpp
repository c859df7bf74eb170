#include "common/input_spec.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "common/failure.h"
#include "common/input_file.h"

namespace etscope {

const char* const kInputForms =
    "TYPE:SIZES:FILE[:DIM_ORDER] (float32:1,3,16,16:x.raw), int:5, double:0.5, bool:true or none";

namespace {

[[noreturn]] void fail(const std::string& spec, const std::string& why) {
  throw Failure(kUsage, "--input " + spec + ": " + why);
}

/// The numbers of "1,3,16"; nothing when that is not what `text` is. "" are no numbers.
template <typename T>
std::optional<std::vector<T>> parse_numbers(const std::string& text) {
  std::vector<T> numbers;
  if (text.empty()) {
    return numbers;
  }
  std::istringstream stream(text + ",");
  for (std::string part; std::getline(stream, part, ',');) {
    if (part.empty() || part.find_first_not_of("0123456789") != std::string::npos ||
        part.size() > 10) {
      return std::nullopt;
    }
    const auto number = std::strtoll(part.c_str(), nullptr, 10);
    if (number > std::numeric_limits<T>::max()) {
      return std::nullopt;
    }
    numbers.push_back(static_cast<T>(number));
  }
  return numbers;
}

bool exists(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0;
}

/// Splits "FILE:0,2,3,1" unless the whole is the name of a file.
std::vector<DimOrderType> split_dim_order(std::string& path, size_t dimensions) {
  const auto colon = path.rfind(':');
  if (colon != std::string::npos && !exists(path)) {
    const auto order = parse_numbers<DimOrderType>(path.substr(colon + 1));
    if (order && is_permutation(*order, dimensions)) {
      path.resize(colon);
      return *order;
    }
  }
  return default_dim_order(dimensions);
}

HostTensor read_tensor(const std::string& spec, ScalarType type, const std::string& rest) {
  const auto colon = rest.find(':');
  if (colon == std::string::npos) {
    fail(spec, "no file; a tensor is TYPE:SIZES:FILE, the sizes empty for a scalar");
  }
  const auto sizes = parse_numbers<SizesType>(rest.substr(0, colon));
  if (!sizes) {
    fail(spec, "sizes are numbers with commas between them");
  }
  HostTensor tensor;
  tensor.type = type;
  tensor.sizes = *sizes;
  std::string path = rest.substr(colon + 1);
  tensor.dim_order = split_dim_order(path, sizes->size());

  const auto bytes = read_file(path);
  const auto expected = count_bytes(type, tensor.sizes);
  if (expected != bytes.size()) {
    throw Failure(
        kBadInput,
        path + " has " + std::to_string(bytes.size()) + " bytes; " + tensor.describe() + " takes " +
            (expected ? std::to_string(*expected) : "more than there can be"));
  }
  tensor.bytes.assign(bytes.data(), bytes.data() + bytes.size());
  return tensor;
}

int64_t parse_int(const std::string& spec, const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0) {
    fail(spec, "not an integer of 64 bits");
  }
  return value;
}

double parse_double(const std::string& spec, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') {
    fail(spec, "not a number");
  }
  return value;
}

} // namespace

Value parse_input(const std::string& spec) {
  if (spec == "none") {
    return Nothing{};
  }
  const auto colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : spec.substr(colon + 1);
  if (kind == "int") {
    return parse_int(spec, rest);
  }
  if (kind == "double") {
    return parse_double(spec, rest);
  }
  if (kind == "bool" && rest.find(':') == std::string::npos) { // else a tensor of bools
    if (rest != "true" && rest != "false") {
      fail(spec, "a bool is true or false");
    }
    return rest == "true";
  }
  const auto type = type_named(kind);
  if (!type) {
    fail(spec, "no type of that name; an input is " + std::string(kInputForms));
  }
  return read_tensor(spec, *type, rest);
}

} // namespace etscope
