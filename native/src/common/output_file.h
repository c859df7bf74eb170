// Files that are either whole or not there.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace etscope {

/// Writes beside `path`; `commit` gives the file its name. Without it nothing is left. What is
/// there and no ordinary file, such as /dev/stdout, is written to as it is.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();

  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Whether it was written; errno says why not.
  bool try_write(const void* data, size_t size) noexcept;

  /// Throws when it cannot be written.
  void write(const void* data, size_t size);

  void commit();

  const std::string& path() const {
    return path_;
  }

  /// Removes what is not committed; for the moment before the process is ended.
  static void abandon_all() noexcept;

 private:
  [[noreturn]] void fail() const;
  void remove_partial() const noexcept;

  const std::string path_;
  std::string partial_; // "": there is none
  std::FILE* file_ = nullptr;
};

void write_file(const std::string& path, const void* data, size_t size);

} // namespace etscope
