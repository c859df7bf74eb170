#include "server/served_program.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/failure.h"

namespace etscope {

namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

/// Table k: what a byte comes to after k more bytes of zeros. Eight of them take eight bytes a
/// step.
Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value & 1) != 0 ? (value >> 1) ^ 0xEDB88320U : value >> 1;
    }
    tables[0][i] = value;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xFF];
    }
  }
  return tables;
}

struct stat status_of(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    throw Failure(kBadInput, "cannot read " + path + ": " + std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    throw Failure(kBadInput, "cannot read " + path + ": not a file");
  }
  return status;
}

int64_t changed(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
}

} // namespace

uint32_t crc32(uint32_t before, const uint8_t* data, size_t size) {
  static const Tables tables = make_tables();
  uint32_t value = ~before;
  for (; size >= 8; size -= 8, data += 8) {
    uint32_t low, high;
    std::memcpy(&low, data, 4);
    std::memcpy(&high, data + 4, 4);
    low ^= value;
    value = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^
        tables[4][low >> 24] ^ tables[3][high & 0xFF] ^ tables[2][high >> 8 & 0xFF] ^
        tables[1][high >> 16 & 0xFF] ^ tables[0][high >> 24];
  }
  for (; size > 0; --size, ++data) {
    value = (value >> 8) ^ tables[0][(value ^ *data) & 0xFF];
  }
  return ~value;
}

ServedProgram::ServedProgram(std::string path) : path_(std::move(path)) {
  if (is_there()) {
    read();
  }
}

void ServedProgram::refresh() {
  if (!is_there()) {
    return;
  }
  const auto status = status_of(path_);
  const bool same = static_cast<uint64_t>(status.st_size) == size_ && status.st_dev == device_ &&
      status.st_ino == inode_ && changed(status) == changed_ns_;
  if (!same) {
    read();
  }
}

std::string ServedProgram::name() const {
  return path_.substr(path_.rfind('/') + 1); // npos + 1 is 0
}

void ServedProgram::read() {
  const auto status = status_of(path_);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path_.c_str(), "rb"), std::fclose);
  if (file == nullptr) {
    throw Failure(kBadInput, "cannot read " + path_ + ": " + std::strerror(errno));
  }
  std::vector<uint8_t> piece(size_t{1} << 20);
  size_ = 0;
  checksum_ = 0;
  while (const size_t got = std::fread(piece.data(), 1, piece.size(), file.get())) {
    checksum_ = crc32(checksum_, piece.data(), got);
    size_ += got;
  }
  if (std::ferror(file.get())) {
    throw Failure(kBadInput, "cannot read " + path_ + ": " + std::strerror(errno));
  }
  device_ = status.st_dev;
  inode_ = status.st_ino;
  changed_ns_ = changed(status);
}

} // namespace etscope
