// The program that a server was started with.
#pragma once

#include <cstdint>
#include <string>

namespace etscope {

uint32_t crc32(uint32_t before, const uint8_t* data, size_t size);

/// What tells whether a client has the same program.
class ServedProgram {
 public:
  /// "": there is none. Reads the file; throws a Failure.
  explicit ServedProgram(std::string path);

  /// Reads the file again if it is not as it was.
  void refresh();

  bool is_there() const {
    return !path_.empty();
  }
  const std::string& path() const {
    return path_;
  }
  std::string name() const;
  uint64_t size() const {
    return size_;
  }
  uint32_t checksum() const {
    return checksum_;
  }

 private:
  void read();

  std::string path_;
  uint64_t size_ = 0;
  uint32_t checksum_ = 0;
  uint64_t device_ = 0, inode_ = 0;
  int64_t changed_ns_ = 0;
};

} // namespace etscope
