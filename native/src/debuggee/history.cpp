#include "debuggee/history.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace etscope {

namespace {

constexpr size_t kBudget = size_t{256} << 20; // bytes
constexpr int64_t kLeastInterval = 100'000'000; // ns
constexpr int64_t kShare = 40; // running takes that many times as long as keeping states of it
constexpr int64_t kBytesPerNs = 2; // that are copied to fresh memory, to begin with

} // namespace

void History::append(Location where, int64_t ns, const std::vector<uint64_t>& prints) {
  steps_.push_back({where, ns, prints_.size()});
  prints_.insert(prints_.end(), prints.begin(), prints.end());
}

void History::truncate(uint64_t count) {
  if (count < steps_.size()) {
    prints_.resize(steps_[count].first_print);
    steps_.resize(count);
  }
}

std::vector<Range> History::ranges(uint64_t first, uint64_t last) const {
  std::vector<Range> found;
  for (uint64_t i = first; i < std::min<uint64_t>(last, steps_.size()); ++i) {
    const Location where = steps_[i].where;
    const bool continues = !found.empty() && found.back().chain == where.chain &&
        found.back().first + found.back().count == where.instruction;
    if (continues) {
      ++found.back().count;
    } else {
      found.push_back({where.chain, where.instruction, 1});
    }
  }
  return found;
}

Checkpoints::Checkpoints(size_t size)
    : interval_(std::max(kLeastInterval, static_cast<int64_t>(size) / kBytesPerNs * kShare)) {
  if (size > kBudget) {
    interval_ = std::numeric_limits<int64_t>::max();
  }
}

void Checkpoints::add(uint64_t step, Checkpoint checkpoint, int64_t taking) {
  interval_ = std::max(interval_, taking * kShare);
  const size_t size = checkpoint.snapshot.bytes();
  if (size > kBudget || kept_.count(step) != 0) {
    return;
  }
  bytes_ += size;
  kept_.emplace(step, std::move(checkpoint));
  while (bytes_ > kBudget) {
    thin_out();
  }
}

/// Drops the one without which the way to any moment is the least longer.
void Checkpoints::thin_out() {
  auto dispensable = kept_.begin();
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t before = 0;
  for (auto it = kept_.begin(); std::next(it) != kept_.end(); ++it) {
    const int64_t gap = std::next(it)->second.total_ns - before;
    if (gap < least) {
      least = gap;
      dispensable = it;
    }
    before = it->second.total_ns;
  }
  bytes_ -= dispensable->second.snapshot.bytes();
  kept_.erase(dispensable);
}

const Checkpoint* Checkpoints::last_until(uint64_t step, uint64_t& at) const {
  const auto after = kept_.upper_bound(step);
  if (after == kept_.begin()) {
    return nullptr;
  }
  const auto found = std::prev(after);
  at = found->first;
  return &found->second;
}

void Checkpoints::drop_from(uint64_t step) {
  const auto first = kept_.lower_bound(step);
  for (auto it = first; it != kept_.end(); ++it) {
    bytes_ -= it->second.snapshot.bytes();
  }
  kept_.erase(first, kept_.end());
}

} // namespace etscope
