#include "server/wire.h"

#include "common/utf8.h"

namespace etscope::wire {

void malformed(const std::string& message) {
  throw Refusal(Code::kProtocol, message);
}

Header Header::of(const uint8_t* bytes) {
  Header header;
  std::memcpy(&header.size, bytes, 4);
  std::memcpy(&header.kind, bytes + 4, 2);
  std::memcpy(&header.zero, bytes + 6, 2);
  std::memcpy(&header.number, bytes + 8, 4);
  return header;
}

void Reader::fail(const std::string& what) const {
  malformed(
      what + " at byte " + std::to_string(at_) + " of a body of " + std::to_string(body_.size()));
}

const uint8_t* Reader::take(size_t size) {
  if (size > left()) {
    fail(std::to_string(size) + " bytes wanted, " + std::to_string(left()) + " left");
  }
  const uint8_t* found = body_.data() + at_;
  at_ += size;
  return found;
}

bool Reader::flag() {
  const auto value = number<uint8_t>();
  if (value > 1) {
    fail("a flag that is " + std::to_string(value));
  }
  return value == 1;
}

std::string Reader::text() {
  const size_t size = number<uint32_t>();
  if (size > kMostText) {
    fail("a text of " + std::to_string(size) + " bytes");
  }
  std::string value(reinterpret_cast<const char*>(take(size)), size);
  if (!is_utf8(value)) {
    fail("a text that is not UTF-8");
  }
  return value;
}

size_t Reader::count(size_t least) {
  const size_t value = number<uint32_t>();
  if (value > left() / least) {
    fail("a list of " + std::to_string(value) + " in " + std::to_string(left()) + " bytes");
  }
  return value;
}

std::vector<uint8_t> Reader::bytes() {
  const auto size = number<uint64_t>();
  if (size > left()) {
    fail(std::to_string(size) + " bytes announced, " + std::to_string(left()) + " left");
  }
  const uint8_t* data = take(static_cast<size_t>(size));
  return {data, data + size};
}

void Reader::finish() const {
  if (left() != 0) {
    fail(std::to_string(left()) + " bytes too many");
  }
}

void Writer::raw(const void* data, size_t size) {
  const auto* first = static_cast<const uint8_t*>(data);
  body_.insert(body_.end(), first, first + size);
}

void Writer::text(const std::string& value) {
  const std::string clean = as_utf8(value, kMostText);
  count(clean.size());
  raw(clean.data(), clean.size());
}

void Writer::bytes(const void* data, size_t size) {
  number<uint64_t>(size);
  raw(data, size);
}

} // namespace etscope::wire
