// The choice of the next token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/options.h"

namespace etscope {

/// Chooses exactly as etscope's Python does: see src/etscope/analysis/generation/sampler.py.
class Sampler {
 public:
  explicit Sampler(const GenerationOptions& options) : options_(options) {}

  /// `step`: the number of tokens chosen before.
  int64_t choose(const float* logits, size_t count, uint64_t step);

 private:
  int64_t draw(const float* logits, size_t count, uint64_t step);

  const GenerationOptions& options_;
  std::vector<double> values_;
  std::vector<size_t> order_;
  std::vector<double> sums_;
};

} // namespace etscope
