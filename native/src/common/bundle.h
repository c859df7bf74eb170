// Bundled programs (.bpte): a program with inputs to run it on and the outputs to expect.
//
// The format is that of bundled_program_schema.fbs, identifier "BP08" (ExecuTorch 1.0 to 1.5).
#pragma once

#include <string>
#include <vector>

#include "common/flatbuffer.h"
#include "common/tensor.h"

namespace etscope {

class Bundle {
 public:
  static bool is_bundle(const uint8_t* data, size_t size);

  /// Views the bytes of a file, which must outlive it.
  Bundle(const uint8_t* data, size_t size, const std::string& path);

  /// Where the program is in the file.
  Span program() const;

  /// How many cases there are for that method.
  size_t case_count(const std::string& method) const;

  /// The inputs of a case; throws when there is none of that index, or when it does not have
  /// `count` inputs.
  std::vector<Value> inputs(const std::string& method, size_t index, size_t count) const;

  /// The outputs to expect of a method that has `count` of them.
  std::vector<Value> expected(const std::string& method, size_t index, size_t count) const;

 private:
  FlatTable test_case(const std::string& method, size_t index) const;
  Value value(const FlatTable& table) const;
  HostTensor tensor(const FlatTable& table) const;
  std::vector<Value> values(const FlatTable& test_case, unsigned slot) const;
  void check_count(
      const std::string& method, size_t index, const char* what, size_t found, size_t count) const;

  FlatBuffer buffer_;
  std::string path_;
};

} // namespace etscope
