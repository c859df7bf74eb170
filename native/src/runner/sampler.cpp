#include "runner/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace etscope {

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
constexpr size_t kLanes = 16; // a compiler makes vectors of so many comparisons

/// The output function of SplitMix64.
uint64_t mix(uint64_t value) {
  value += kGolden;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

/// In [0, 1).
double uniform(uint64_t seed, uint64_t step) {
  return static_cast<double>(mix(mix(seed) + step * kGolden) >> 11) * 0x1p-53;
}

/// The first of the largest; NaN is never the largest.
int64_t first_largest(const float* logits, size_t count) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = logits[i + lane];
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  float most = *std::max_element(lanes, lanes + kLanes);
  for (; i < count; ++i) {
    most = logits[i] > most ? logits[i] : most;
  }
  const float* found = std::find(logits, logits + count, most);
  return found == logits + count ? 0 : found - logits;
}

} // namespace

int64_t Sampler::choose(const float* logits, size_t count, uint64_t step) {
  return options_.temperature > 0 ? draw(logits, count, step) : first_largest(logits, count);
}

int64_t Sampler::draw(const float* logits, size_t count, uint64_t step) {
  values_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    values_[i] = std::isnan(logits[i]) ? -std::numeric_limits<double>::infinity() : logits[i];
  }
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), size_t{0});
  if (options_.top_k || options_.top_p) {
    const auto likelier = [this](size_t a, size_t b) {
      return values_[a] > values_[b] || (values_[a] == values_[b] && a < b);
    };
    const size_t kept =
        std::min(count, static_cast<size_t>(options_.top_k.value_or(static_cast<int64_t>(count))));
    std::partial_sort(
        order_.begin(), order_.begin() + static_cast<ptrdiff_t>(kept), order_.end(), likelier);
    order_.resize(kept);
  }
  double largest = -std::numeric_limits<double>::infinity();
  size_t where = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    if (values_[order_[i]] > largest) {
      largest = values_[order_[i]];
      where = i;
    }
  }
  if (!std::isfinite(largest)) {
    return static_cast<int64_t>(order_[where]);
  }
  sums_.clear();
  double sum = 0;
  for (const size_t id : order_) {
    sum += std::exp((values_[id] - largest) / options_.temperature);
    sums_.push_back(sum);
  }
  if (options_.top_p) {
    const auto last = std::lower_bound(sums_.begin(), sums_.end(), *options_.top_p * sum);
    sums_.resize(std::min(sums_.size(), static_cast<size_t>(last - sums_.begin()) + 1));
  }
  const double drawn = uniform(options_.sampler_seed, step) * sums_.back();
  const auto found = std::upper_bound(sums_.begin(), sums_.end(), drawn);
  const auto at = std::min(sums_.size() - 1, static_cast<size_t>(found - sums_.begin()));
  return static_cast<int64_t>(order_[at]);
}

} // namespace etscope
