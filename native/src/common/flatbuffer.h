// Reads FlatBuffers that may hold anything: every access is checked against the file's end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace etscope {

/// Bytes of the buffer.
struct Span {
  size_t offset = 0;
  size_t size = 0;
};

class FlatTable;

/// The bytes, which must outlive it. `kind` is for messages: "x.bpte: not a valid bundled program".
class FlatBuffer {
 public:
  FlatBuffer(const uint8_t* data, size_t size, std::string kind);

  FlatTable root() const;

  /// A number at that position.
  template <typename T>
  T number(size_t position) const {
    T value;
    std::memcpy(&value, at({position, sizeof(T)}), sizeof(T));
    return value;
  }

  /// The first of these bytes; throws when not all are in the buffer.
  const uint8_t* at(Span span) const;

  /// Where the offset at that position points to.
  size_t follow(size_t position) const;

  /// The elements of the vector at that position.
  Span elements(size_t position, size_t element_size) const;

  [[noreturn]] void fail(const std::string& what, size_t position) const;

 private:
  const uint8_t* data_;
  size_t size_;
  std::string kind_;
};

class FlatTable {
 public:
  FlatTable(const FlatBuffer& buffer, size_t position);

  template <typename T>
  T number(unsigned slot, T missing = 0) const {
    const auto position = field(slot);
    return position ? buffer_->number<T>(*position) : missing;
  }

  /// The bytes of a string or of a vector of bytes; none when the field is not there.
  Span blob(unsigned slot) const;

  std::string string(unsigned slot) const;

  template <typename T>
  std::vector<T> numbers(unsigned slot) const {
    const auto position = field(slot);
    if (!position) {
      return {};
    }
    const Span span = buffer_->elements(buffer_->follow(*position), sizeof(T));
    std::vector<T> values(span.size / sizeof(T));
    if (!values.empty()) {
      std::memcpy(values.data(), buffer_->at(span), span.size);
    }
    return values;
  }

  /// How many tables the vector in that slot holds.
  size_t table_count(unsigned slot) const;

  FlatTable table_at(unsigned slot, size_t index) const;

  /// The table in that slot; nothing when it is not there.
  std::optional<FlatTable> table(unsigned slot) const;

  size_t position() const {
    return position_;
  }

 private:
  std::optional<size_t> field(unsigned slot) const;

  const FlatBuffer* buffer_;
  size_t position_;
  size_t vtable_;
  size_t vtable_size_;
};

} // namespace etscope
