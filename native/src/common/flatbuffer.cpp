#include "common/flatbuffer.h"

#include <utility>

#include "common/failure.h"

namespace etscope {

FlatBuffer::FlatBuffer(const uint8_t* data, size_t size, std::string kind)
    : data_(data), size_(size), kind_(std::move(kind)) {}

FlatTable FlatBuffer::root() const {
  return FlatTable(*this, follow(0));
}

const uint8_t* FlatBuffer::at(Span span) const {
  if (span.offset > size_ || span.size > size_ - span.offset) {
    fail("it ends before what it points to", span.offset);
  }
  return data_ + span.offset;
}

size_t FlatBuffer::follow(size_t position) const {
  return position + number<uint32_t>(position); // of 64 bits, so there is no overflow
}

Span FlatBuffer::elements(size_t position, size_t element_size) const {
  const Span span{position + 4, number<uint32_t>(position) * element_size};
  at(span);
  return span;
}

void FlatBuffer::fail(const std::string& what, size_t position) const {
  throw Failure(kBadInput, kind_ + ": " + what + " (offset " + std::to_string(position) + ")");
}

FlatTable::FlatTable(const FlatBuffer& buffer, size_t position)
    : buffer_(&buffer), position_(position) {
  const int64_t vtable = static_cast<int64_t>(position) - buffer.number<int32_t>(position);
  if (vtable < 0) {
    buffer.fail("a table without a layout", position);
  }
  vtable_ = static_cast<size_t>(vtable);
  vtable_size_ = buffer.number<uint16_t>(vtable_);
  if (vtable_size_ < 4) {
    buffer.fail("a table without a layout", position);
  }
}

std::optional<size_t> FlatTable::field(unsigned slot) const {
  const size_t entry = 4 + 2 * size_t{slot};
  if (entry + 2 > vtable_size_) {
    return std::nullopt;
  }
  const auto offset = buffer_->number<uint16_t>(vtable_ + entry);
  return offset == 0 ? std::nullopt : std::optional(position_ + offset);
}

Span FlatTable::blob(unsigned slot) const {
  const auto position = field(slot);
  return position ? buffer_->elements(buffer_->follow(*position), 1) : Span{};
}

std::string FlatTable::string(unsigned slot) const {
  const Span span = blob(slot);
  return std::string(reinterpret_cast<const char*>(buffer_->at(span)), span.size);
}

size_t FlatTable::table_count(unsigned slot) const {
  const auto position = field(slot);
  return position ? buffer_->elements(buffer_->follow(*position), 4).size / 4 : 0;
}

FlatTable FlatTable::table_at(unsigned slot, size_t index) const {
  const Span span = buffer_->elements(buffer_->follow(field(slot).value()), 4);
  return FlatTable(*buffer_, buffer_->follow(span.offset + 4 * index));
}

std::optional<FlatTable> FlatTable::table(unsigned slot) const {
  const auto position = field(slot);
  return position ? std::optional(FlatTable(*buffer_, buffer_->follow(*position))) : std::nullopt;
}

} // namespace etscope
