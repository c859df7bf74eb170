// What a client uploads: a program, and data of tensors.
#pragma once

#include <cstdint>
#include <string>

namespace etscope {

/// Bytes in a file without a name, which is gone with the process. Throws a Refusal.
class Staging {
 public:
  explicit Staging(uint64_t most) : most_(most) {}
  ~Staging();

  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Puts bytes where the area ends. Offset 0 begins another file: what was opened by `path` stays
  /// as it is.
  void put(uint64_t offset, const uint8_t* data, size_t size);

  void read(uint64_t offset, uint8_t* to, size_t size) const;

  uint64_t size() const {
    return size_;
  }

  /// By which the file can be opened as long as it is there.
  std::string path() const;

 private:
  void begin();

  const uint64_t most_;
  uint64_t size_ = 0;
  int file_ = -1;
};

} // namespace etscope
