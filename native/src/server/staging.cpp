#include "server/staging.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "server/wire.h"

namespace etscope {

using wire::Code;
using wire::Refusal;

namespace {

[[noreturn]] void fail(const std::string& doing) {
  throw Refusal(Code::kLimit, doing + ": " + std::strerror(errno));
}

} // namespace

Staging::~Staging() {
  if (file_ >= 0) {
    close(file_);
  }
}

void Staging::begin() {
  if (file_ >= 0) {
    close(file_);
    file_ = -1;
  }
  size_ = 0;
  const char* folder = std::getenv("TMPDIR");
  std::string name =
      std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/etdb-server-XXXXXX";
  file_ = mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) {
    fail("no file for uploads in " + name.substr(0, name.rfind('/')) + " (TMPDIR names another)");
  }
  unlink(name.c_str());
}

void Staging::put(uint64_t offset, const uint8_t* data, size_t size) {
  if (offset != 0 && offset != size_) {
    throw Refusal(
        Code::kState,
        "an upload at byte " + std::to_string(offset) + ", where the area ends at " +
            std::to_string(size_));
  }
  if (size > most_ || offset > most_ - size) {
    throw Refusal(
        Code::kLimit,
        "this server takes uploads of " + std::to_string(most_) + " bytes (--max-upload)");
  }
  if (offset == 0) {
    begin();
  }
  for (size_t done = 0; done < size;) {
    const ssize_t written =
        pwrite(file_, data + done, size - done, static_cast<off_t>(size_ + done));
    if (written < 0 && errno != EINTR) {
      fail("keeping an upload");
    }
    done += written > 0 ? static_cast<size_t>(written) : 0;
  }
  size_ += size;
}

void Staging::read(uint64_t offset, uint8_t* to, size_t size) const {
  if (offset > size_ || size > size_ - offset) {
    throw Refusal(
        Code::kValue,
        std::to_string(size) + " bytes at byte " + std::to_string(offset) +
            " of the uploaded ones, of which there are " + std::to_string(size_));
  }
  for (size_t done = 0; done < size;) {
    const ssize_t got = pread(file_, to + done, size - done, static_cast<off_t>(offset + done));
    if (got == 0 || (got < 0 && errno != EINTR)) {
      fail("reading what was uploaded");
    }
    done += got > 0 ? static_cast<size_t>(got) : 0;
  }
}

std::string Staging::path() const {
  return "/proc/self/fd/" + std::to_string(file_);
}

} // namespace etscope
