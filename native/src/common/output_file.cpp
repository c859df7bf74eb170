#include "common/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "common/failure.h"

namespace etscope {

namespace {

std::set<OutputFile*>& open_files() {
  static std::set<OutputFile*> files;
  return files;
}

bool can_be_renamed_to(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
}

} // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (can_be_renamed_to(path_)) {
    partial_ = path_ + ".partial-" + std::to_string(getpid());
  }
  file_ = std::fopen(partial_.empty() ? path_.c_str() : partial_.c_str(), "wb");
  if (file_ == nullptr) {
    fail();
  }
  open_files().insert(this);
}

OutputFile::~OutputFile() {
  open_files().erase(this);
  if (file_ != nullptr) {
    std::fclose(file_);
    remove_partial();
  }
}

void OutputFile::remove_partial() const noexcept {
  if (!partial_.empty()) {
    std::remove(partial_.c_str());
  }
}

bool OutputFile::try_write(const void* data, size_t size) noexcept {
  return std::fwrite(data, 1, size, file_) == size;
}

void OutputFile::write(const void* data, size_t size) {
  if (size > 0 && !try_write(data, size)) {
    fail();
  }
}

void OutputFile::commit() {
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  if (!closed || (!partial_.empty() && std::rename(partial_.c_str(), path_.c_str()) != 0)) {
    const int reason = errno;
    remove_partial();
    errno = reason;
    fail();
  }
}

void OutputFile::fail() const {
  throw Failure(kBadInput, "cannot write " + path_ + ": " + std::strerror(errno));
}

void OutputFile::abandon_all() noexcept {
  for (OutputFile* file : open_files()) {
    file->remove_partial();
  }
}

void write_file(const std::string& path, const void* data, size_t size) {
  OutputFile file(path);
  file.write(data, size);
  file.commit();
}

} // namespace etscope
