// What a run has done, step by step, and the states of it that were kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "debuggee/location.h"
#include "debuggee/method_state.h"

namespace etscope {

/// The instructions that ran, with the fingerprints of what they wrote.
class History {
 public:
  uint64_t size() const {
    return steps_.size();
  }

  /// The instruction that step `index + 1` executed, and how long it took.
  Location where(uint64_t index) const {
    return steps_[index].where;
  }
  int64_t& ns(uint64_t index) {
    return steps_[index].ns;
  }

  /// As many as were given.
  uint64_t* prints(uint64_t index) {
    return prints_.data() + steps_[index].first_print;
  }

  void append(Location where, int64_t ns, const std::vector<uint64_t>& prints);

  /// Forgets all steps but the first `count`.
  void truncate(uint64_t count);

  /// What ran in steps first + 1 to last, as few ranges as there are.
  std::vector<Range> ranges(uint64_t first, uint64_t last) const;

 private:
  struct Step {
    Location where;
    int64_t ns;
    uint64_t first_print;
  };
  std::vector<Step> steps_;
  std::vector<uint64_t> prints_;
};

struct Checkpoint {
  Snapshot snapshot;
  int64_t total_ns = 0; // from the beginning
};

/// Some moments of a run: enough to be back at any soon, within a budget of memory.
class Checkpoints {
 public:
  /// size: bytes that one has, more or less.
  explicit Checkpoints(size_t size);

  /// Whether it is time for the next one, when the last is `since` ns of running ago.
  bool is_due(int64_t since) const {
    return since >= interval_;
  }

  /// `taking`: the ns that it took. Older ones make room for it.
  void add(uint64_t step, Checkpoint checkpoint, int64_t taking);

  /// The last one at `step` or before; null: only the beginning is.
  const Checkpoint* last_until(uint64_t step, uint64_t& at) const;

  bool any_after(uint64_t step) const {
    return !kept_.empty() && kept_.rbegin()->first > step;
  }

  /// Forgets those at `step` and after it.
  void drop_from(uint64_t step);

 private:
  void thin_out();

  std::map<uint64_t, Checkpoint> kept_;
  size_t bytes_ = 0;
  int64_t interval_; // ns of running
};

} // namespace etscope
