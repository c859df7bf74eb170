#include "common/data_sink.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "common/failure.h"

namespace etscope {

namespace {

constexpr size_t kAlignment = 64;
constexpr std::array<uint8_t, kAlignment> kPadding = {};

/// Bytes up to the next boundary.
size_t padding_at(size_t used) {
  return (kAlignment - used % kAlignment) % kAlignment;
}

} // namespace

DebugFile::DebugFile(const std::string& path, size_t limit) : file_(path), limit_(limit) {}

executorch::runtime::Result<size_t> DebugFile::write(const void* data, size_t size) {
  const size_t padding = padding_at(used_);
  const size_t offset = used_ + padding;
  used_ = offset + size;
  const bool fits = limit_ == 0 || used_ <= limit_;
  if (fits && write_error_ == 0 &&
      !(file_.try_write(kPadding.data(), padding) && file_.try_write(data, size))) {
    write_error_ = errno;
  }
  return offset;
}

void DebugFile::finish() {
  if (limit_ != 0 && used_ > limit_) {
    throw Failure(
        kDebugBufferFull,
        "the debug buffer is full: " + std::to_string(used_) +
            " bytes were to be logged, --debug-buffer-size is " + std::to_string(limit_));
  }
  if (write_error_ != 0) {
    throw Failure(kBadInput, "cannot write " + file_.path() + ": " + std::strerror(write_error_));
  }
  if (used_ == 0) { // an empty file would look like one that was never written
    file_.write(kPadding.data(), kPadding.size());
  }
  file_.commit();
}

executorch::runtime::Result<size_t> DebugBuffer::write(const void* data, size_t size) {
  const size_t offset = used_ + padding_at(used_);
  const bool whole = bytes_.size() == used_;
  used_ = offset + size;
  if (whole && used_ <= limit_) {
    try { // an exception must not fly through the runtime
      const auto* first = static_cast<const uint8_t*>(data);
      bytes_.resize(offset);
      bytes_.insert(bytes_.end(), first, first + size);
      last_[data] = {offset, size};
    } catch (const std::bad_alloc&) {
      bytes_ = {};
    }
  } else {
    bytes_ = {};
  }
  return offset;
}

void DebugBuffer::replace(const void* data, const std::vector<uint8_t>& bytes) {
  const auto found = last_.find(data);
  if (found != last_.end() && found->second.size == bytes.size() && bytes_.size() == used_) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + found->second.offset);
  }
}

std::vector<uint8_t> DebugBuffer::take() {
  if (bytes_.size() != used_) {
    throw Failure(
        kDebugBufferFull,
        "the values of this run are " + std::to_string(used_) + " bytes, more than the " +
            std::to_string(limit_) + " of a core, or than there is memory for");
  }
  if (used_ == 0) { // as DebugFile does
    bytes_.assign(kPadding.begin(), kPadding.end());
  }
  used_ = 0;
  return std::exchange(bytes_, {});
}

} // namespace etscope
