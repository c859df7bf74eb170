// Where logged tensors go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <executorch/devtools/etdump/data_sinks/data_sink_base.h>

#include "common/output_file.h"

namespace etscope {

/// A file in which each tensor starts on a boundary of 64 bytes.
///
/// The runtime aborts when a sink refuses a tensor, so this one never does: what no longer fits is
/// counted, and `finish` throws.
class DebugFile : public executorch::etdump::DataSinkBase {
 public:
  /// limit: bytes the file may have; 0: no limit.
  DebugFile(const std::string& path, size_t limit);

  executorch::runtime::Result<size_t> write(const void* data, size_t size) override;

  size_t get_used_bytes() const override {
    return used_;
  }

  /// Names the file, or throws when it is not whole.
  void finish();

 private:
  OutputFile file_;
  const size_t limit_;
  size_t used_ = 0;
  int write_error_ = 0;
};

/// Memory in which each tensor starts on a boundary of 64 bytes. Like DebugFile it refuses nothing,
/// and `take` throws.
class DebugBuffer : public executorch::etdump::DataSinkBase {
 public:
  /// limit: bytes that it may have.
  explicit DebugBuffer(size_t limit) : limit_(limit) {}

  executorch::runtime::Result<size_t> write(const void* data, size_t size) override;

  size_t get_used_bytes() const override {
    return used_;
  }

  /// An instruction begins.
  void next() {
    last_.clear();
  }

  /// Puts other bytes in the place of those that this instruction wrote from there, if as many
  /// were.
  void replace(const void* data, const std::vector<uint8_t>& bytes);

  /// What was written; throws when it is not whole.
  std::vector<uint8_t> take();

 private:
  struct Piece {
    size_t offset, size;
  };

  const size_t limit_;
  std::vector<uint8_t> bytes_;
  size_t used_ = 0;
  std::map<const void*, Piece> last_; // of this instruction, by where it was written from
};

} // namespace etscope
