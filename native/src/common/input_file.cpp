#include "common/input_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "common/failure.h"

namespace etscope {

namespace {

constexpr size_t kAlignment = 64;

struct Close {
  void operator()(std::FILE* file) const {
    std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, Close>;

[[noreturn]] void fail(const std::string& path, const char* why) {
  throw Failure(kBadInput, "cannot read " + path + ": " + why);
}

/// The open file and its size.
File open(const std::string& path, size_t& size) {
  File file(std::fopen(path.c_str(), "rb"));
  struct stat status = {};
  if (file == nullptr || fstat(fileno(file.get()), &status) != 0) {
    fail(path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(path, "not a file");
  }
  size = static_cast<size_t>(status.st_size);
  return file;
}

} // namespace

AlignedBytes::AlignedBytes(size_t size) : size_(size) {
  const size_t whole = (size / kAlignment + 1) * kAlignment;
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, whole)));
  if (data_ == nullptr) {
    throw std::bad_alloc();
  }
}

void AlignedBytes::Free::operator()(uint8_t* data) const {
  std::free(data);
}

AlignedBytes read_file(const std::string& path) {
  size_t size = 0;
  const File file = open(path, size);
  AlignedBytes bytes(size);
  if (std::fread(bytes.data(), 1, size, file.get()) != size) {
    fail(path, std::ferror(file.get()) ? std::strerror(errno) : "it became shorter");
  }
  return bytes;
}

void check_readable(const std::string& path) {
  size_t size = 0;
  open(path, size);
}

} // namespace etscope
