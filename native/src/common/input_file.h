// A file in memory, aligned for what maps structures onto it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace etscope {

/// Bytes that start on a boundary of 64.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size);

  uint8_t* data() const {
    return data_.get();
  }
  size_t size() const {
    return size_;
  }

 private:
  struct Free {
    void operator()(uint8_t* data) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t size_;
};

AlignedBytes read_file(const std::string& path);

/// Throws unless there is a file that can be read.
void check_readable(const std::string& path);

} // namespace etscope
