#include "server/messages.h"

#include <algorithm>

namespace etscope::wire {

using executorch::aten::Tensor;
using executorch::runtime::EValue;
using executorch::runtime::Tag;

namespace {

/// So that an answer is no longer than a frame. Loops of two instructions and more need no more:
/// the runtime ends a run after 10 million.
constexpr size_t kMostRanges = 5'000'000;

enum ValueTag : uint8_t {
  kNone = 0,
  kInt = 1,
  kDouble = 2,
  kBool = 3,
  kText = 4,
  kTensor = 5,
  kList = 6,
  kTensorFacts = 7,
  kStagedTensor = 8,
};

HostTensor read_tensor_facts(Reader& reader, Code misfit) {
  HostTensor tensor;
  const auto type = reader.number<uint8_t>();
  const size_t dimensions = reader.number<uint8_t>();
  if (dimensions > kMostDimensions) {
    reader.fail("a tensor of " + std::to_string(dimensions) + " dimensions");
  }
  for (size_t i = 0; i < dimensions; ++i) {
    const auto size = reader.number<uint32_t>();
    if (size > INT32_MAX) {
      throw Refusal(misfit, "a tensor with a size of " + std::to_string(size));
    }
    tensor.sizes.push_back(static_cast<SizesType>(size));
  }
  const uint8_t* order = reader.take(dimensions);
  tensor.dim_order.assign(order, order + dimensions);
  if (!is_permutation(tensor.dim_order, dimensions)) {
    reader.fail("an order of dimensions that is none");
  }
  const auto known = type_numbered(type);
  if (!known) {
    throw Refusal(misfit, "there is no scalar type " + std::to_string(type));
  }
  tensor.type = *known;
  return tensor;
}

size_t size_of(const HostTensor& tensor, Code misfit) {
  const auto bytes = count_bytes(tensor.type, tensor.sizes);
  if (!bytes) {
    throw Refusal(misfit, tensor.describe() + " is larger than any memory");
  }
  return *bytes;
}

Value read_tensor(Reader& reader, Code misfit) {
  HostTensor tensor = read_tensor_facts(reader, misfit);
  tensor.bytes = reader.bytes();
  if (tensor.bytes.size() != size_of(tensor, misfit)) {
    throw Refusal(
        misfit,
        tensor.describe() + " has " + std::to_string(size_of(tensor, misfit)) + " bytes, not " +
            std::to_string(tensor.bytes.size()));
  }
  return tensor;
}

Value read_staged_tensor(Reader& reader, const Staging& staging, Code misfit) {
  HostTensor tensor = read_tensor_facts(reader, misfit);
  const auto offset = reader.number<uint64_t>();
  const size_t size = size_of(tensor, misfit);
  if (offset > staging.size() || size > staging.size() - offset) { // before memory is asked for
    throw Refusal(
        misfit,
        tensor.describe() + " at byte " + std::to_string(offset) + " of the " +
            std::to_string(staging.size()) + " uploaded bytes: it does not fit");
  }
  tensor.bytes.resize(size);
  staging.read(offset, tensor.bytes.data(), size);
  return tensor;
}

void write_tensor_facts(Writer& writer, const Tensor& tensor) {
  writer.number<uint8_t>(kTensorFacts);
  writer.number(static_cast<uint8_t>(tensor.scalar_type()));
  writer.number(static_cast<uint8_t>(tensor.dim()));
  for (const SizesType size : tensor.sizes()) {
    writer.number(static_cast<uint32_t>(size));
  }
  for (const DimOrderType dimension : tensor.dim_order()) {
    writer.number(static_cast<uint8_t>(dimension));
  }
  writer.number<uint64_t>(tensor.nbytes());
}

void write_int(Writer& writer, int64_t value) {
  writer.number<uint8_t>(kInt);
  writer.number(value);
}

void write_double(Writer& writer, double value) {
  writer.number<uint8_t>(kDouble);
  writer.number(value);
}

void write_bool(Writer& writer, bool value) {
  writer.number<uint8_t>(kBool);
  writer.flag(value);
}

template <typename List, typename Write>
void write_list(Writer& writer, const List& list, const Write& write) {
  if (!list.ok()) { // an element of another kind: a program's fault, which is not to end it here
    throw Refusal(Code::kValue, "the value is a list whose elements are not of its kind");
  }
  writer.number<uint8_t>(kList);
  writer.count(list->size());
  for (const auto& element : *list) {
    write(writer, element);
  }
}

void write_location(Writer& writer, const Location& where) {
  writer.number(where.chain);
  writer.number(where.instruction);
}

} // namespace

Value read_value(Reader& reader, const Staging& staging, Code misfit) {
  const auto tag = reader.number<uint8_t>();
  switch (tag) {
    case kNone:
      return Nothing{};
    case kInt:
      return reader.number<int64_t>();
    case kDouble:
      return reader.number<double>();
    case kBool:
      return reader.flag();
    case kText:
      return reader.text();
    case kTensor:
      return read_tensor(reader, misfit);
    case kStagedTensor:
      return read_staged_tensor(reader, staging, misfit);
    case kList:
      throw Refusal(misfit, "a list can be looked at, but not given");
    default:
      reader.fail("a value with the tag " + std::to_string(tag));
  }
}

OutputTable read_outputs(Reader& reader) {
  OutputTable table(reader.count(sizeof(uint32_t)));
  for (auto& outputs : table) {
    outputs.resize(reader.count(sizeof(uint32_t)));
    for (uint32_t& output : outputs) {
      output = reader.number<uint32_t>();
    }
  }
  return table;
}

std::vector<Test> read_tests(Reader& reader) {
  std::vector<Test> tests(reader.count(1 + sizeof(double) + sizeof(uint64_t)));
  for (Test& test : tests) {
    const auto what = reader.number<uint8_t>();
    if (what < 1 || what > 4) {
      reader.fail("a test of the kind " + std::to_string(what));
    }
    test.condition = static_cast<Condition>(what);
    test.bound = reader.number<double>();
    test.instructions = reader.bytes();
  }
  return tests;
}

void write_description(Writer& writer, const EValue& value) {
  switch (value.tag) {
    case Tag::None:
      return writer.number<uint8_t>(kNone);
    case Tag::Int:
      return write_int(writer, value.toInt());
    case Tag::Double:
      return write_double(writer, value.toDouble());
    case Tag::Bool:
      return write_bool(writer, value.toBool());
    case Tag::String: {
      writer.number<uint8_t>(kText);
      const auto text = value.toString();
      return writer.text({text.data(), text.size()});
    }
    case Tag::Tensor:
      return write_tensor_facts(writer, value.toTensor());
    case Tag::ListInt:
      return write_list(writer, value.tryToIntList(), write_int);
    case Tag::ListDouble:
      return write_list(writer, value.tryToDoubleList(), write_double);
    case Tag::ListBool:
      return write_list(writer, value.tryToBoolList(), write_bool);
    case Tag::ListTensor:
      return write_list(writer, value.tryToTensorList(), write_tensor_facts);
    case Tag::ListOptionalTensor:
      return write_list(
          writer, value.tryToListOptionalTensor(), [](Writer& to, const auto& tensor) {
            if (tensor) {
              write_tensor_facts(to, *tensor);
            } else {
              to.number<uint8_t>(kNone);
            }
          });
    default:
      throw Refusal(Code::kValue, "the value is of a kind that cannot be shown");
  }
}

void write_differences(Writer& writer, const std::vector<Difference>& differences) {
  writer.count(differences.size());
  for (const Difference& difference : differences) {
    writer.number(difference.step);
    write_location(writer, difference.where);
    writer.number(difference.value);
  }
}

void write_stopped(Writer& writer, const Stopped& stopped) {
  writer.number(static_cast<uint8_t>(stopped.why));
  writer.number(stopped.step);
  write_location(writer, stopped.where);
  writer.number(static_cast<uint64_t>(stopped.last_ns));
  writer.number(static_cast<uint64_t>(stopped.total_ns));
  const auto& ran = stopped.ran;
  const size_t left_out = ran.size() - std::min(ran.size(), kMostRanges);
  writer.count(ran.size() - left_out);
  for (size_t i = left_out; i < ran.size(); ++i) {
    const Range& range = ran[i];
    writer.number(range.chain);
    writer.number(range.first);
    writer.number(range.count);
  }
  writer.number(stopped.test);
  writer.number(stopped.value);
  writer.number(stopped.count);
  write_differences(writer, stopped.differences);
  writer.text(stopped.error);
}

} // namespace etscope::wire
