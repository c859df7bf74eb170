#include "debuggee/execution.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/failure.h"
#include "common/platform.h"
#include "debuggee/ticks.h"

namespace etscope {

using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::EValue;

namespace {

constexpr size_t kMostDifferences = 16;
constexpr uint64_t kMostSteps = 10'000'000; // Method::execute gives up there, too
constexpr int64_t kPollInterval = 1'000'000; // ns

bool has_bit(const std::vector<uint8_t>& bits, const Location& where) {
  const size_t byte = where.instruction / 8;
  return where.chain == 0 && byte < bits.size() && (bits[byte] >> where.instruction % 8 & 1) != 0;
}

uint64_t count_of(const Test& test, const Tensor& tensor) {
  switch (test.condition) {
    case Condition::kNan:
      return count_nan(tensor);
    case Condition::kInf:
      return count_inf(tensor);
    case Condition::kBelow:
      return count_below(tensor, test.bound);
    case Condition::kAbove:
      return count_above(tensor, test.bound);
  }
  return 0;
}

/// The inputs that the method uses where they are.
std::vector<Region> unplanned(const LoadedMethod& loaded, Inputs& inputs) {
  const auto meta = loaded.method().method_meta();
  std::vector<Region> found;
  for (size_t i = 0; i < inputs.held.size(); ++i) {
    auto* tensor = std::get_if<HostTensor>(&inputs.held[i]);
    if (tensor == nullptr || tensor->bytes.empty()) {
      continue;
    }
    const auto taken = meta.input_tensor_meta(i);
    if (taken.ok() && !taken->is_memory_planned()) {
      found.emplace_back(tensor->bytes.data(), tensor->bytes.size());
    }
  }
  return found;
}

} // namespace

Execution::Execution(Session& session, const std::string& method, OutputTable outputs)
    : table_(std::move(outputs)),
      arenas_(session.planned_sizes(method)),
      loaded_(session.fresh_method(method, &*arenas_.allocator)),
      method_(loaded_.method()),
      values_(internals::values(method_)),
      value_count_(internals::value_count(method_)),
      state_(method_, always_part_of_it()),
      as_loaded_(state_.take()),
      checkpoints_(as_loaded_.bytes()) {
  for (const auto& instruction : table_) {
    for (const uint32_t index : instruction) {
      value(index); // throws if there is none
    }
  }
}

std::vector<Region> Execution::always_part_of_it() const {
  std::vector<Region> all = arenas_.memory;
  for (const AlignedBytes& bytes : loaded_.output_memory()) {
    std::memset(bytes.data(), 0, bytes.size());
    all.emplace_back(bytes.data(), bytes.size());
  }
  return all;
}

const EValue& Execution::value(uint32_t index) const {
  if (index >= value_count_) {
    throw Failure(
        kBadInput,
        "there is no value " + std::to_string(index) + ": method '" + loaded_.name() + "' has " +
            std::to_string(value_count_));
  }
  return values_[index];
}

const Tensor& Execution::tensor(uint32_t index) const {
  const EValue& found = value(index);
  if (!found.isTensor()) {
    throw Failure(kBadInput, "value " + std::to_string(index) + " is no tensor");
  }
  const Tensor& tensor = found.toTensor();
  if (tensor.nbytes() > 0 && tensor.const_data_ptr() == nullptr) {
    throw Failure(kBadInput, "value " + std::to_string(index) + " has no memory now");
  }
  return tensor;
}

void Execution::check_begun() const {
  if (!begun_) {
    throw Failure(kUsage, "no run has begun");
  }
}

bool Execution::at_end() const {
  return internals::position(method_).chain >= internals::chain_count(method_);
}

Location Execution::next() const {
  const auto& position = internals::position(method_);
  return {static_cast<uint32_t>(position.chain), static_cast<uint32_t>(position.instruction)};
}

const std::vector<uint32_t>& Execution::outputs_of(Location where) const {
  static const std::vector<uint32_t> none;
  return where.chain == 0 && where.instruction < table_.size() ? table_[where.instruction] : none;
}

const std::vector<uint64_t>& Execution::prints_of(Location where) {
  prints_.clear();
  for (const uint32_t index : outputs_of(where)) {
    prints_.push_back(values_[index].isTensor() ? fingerprint(values_[index].toTensor()) : 0);
  }
  return prints_;
}

// The runtime says whether it takes them only when it is given them.
void Execution::set_inputs(const std::vector<Value>& values) {
  Inputs made = loaded_.make_inputs(values);
  const Snapshot before = state_.take();
  internals::position(method_) = {}; // it takes none in the middle of a run
  try {
    loaded_.feed(made);
  } catch (const Failure&) {
    state_.restore(before);
    throw;
  }
  state_.restore(before);
  next_inputs_ = std::move(made.held);
}

void Execution::begin(bool traced, bool keep) {
  if (!next_inputs_ && loaded_.input_count() > 0) {
    throw Failure(kUsage, "the method has no inputs yet");
  }
  if (keep && (!begun_ || failed_ || !at_end())) {
    throw Failure(kUsage, "the run before is not over, so that none can go on from its state");
  }
  Inputs made;
  if (next_inputs_) {
    made = loaded_.make_inputs(*next_inputs_);
  }
  std::optional<Snapshot> kept;
  if (keep) {
    kept = state_.take();
    kept->memory.resize(as_loaded_.memory.size()); // without the inputs that were used in place
    kept->position = as_loaded_.position;
  }
  as_kept_ = std::move(kept);
  state_.drop_added();
  inputs_ = std::move(made);
  for (const Region& used : unplanned(loaded_, inputs_)) {
    state_.add(used);
  }
  patches_.clear();
  history_.truncate(0);
  checkpoints_.drop_from(0);
  differences_.clear();
  begun_ = true;
  traced_ = traced;
  trace_ = nullptr;
  set_activity("executing method '" + loaded_.name() + "'");
  restore_beginning();
  complete_trace();
}

/// The state of step 0.
void Execution::restore_beginning() {
  state_.restore(as_kept_ ? *as_kept_ : as_loaded_);
  loaded_.feed(inputs_);
  step_ = 0;
  total_ns_ = 0;
  checkpoint_ns_ = 0;
  failed_ = false;
  skip_empty_chain();
  apply_patches();
}

/// A program that gives back what it gets has a chain without instructions, which takes the runtime
/// a step of its own.
void Execution::skip_empty_chain() {
  if (table_.empty() && next() == Location{0, 0}) {
    internals::event_tracer(method_) = nullptr;
    check(internals::step(method_), "starting method '" + loaded_.name() + "'");
  }
}

/// The last state up to that step that was kept.
void Execution::restore_until(uint64_t step) {
  uint64_t at = 0;
  const Checkpoint* checkpoint = traced_ ? nullptr : checkpoints_.last_until(step, at);
  trace_ = nullptr;
  if (checkpoint == nullptr) {
    restore_beginning();
    return;
  }
  state_.restore(checkpoint->snapshot);
  step_ = at;
  total_ns_ = checkpoint->total_ns;
  checkpoint_ns_ = total_ns_;
  failed_ = false;
}

Stopped Execution::stand_at(uint64_t step, const Interrupted& interrupted) {
  uint64_t kept = 0;
  const bool ahead = !traced_ && checkpoints_.last_until(step, kept) != nullptr && kept > step_;
  if (step < step_ || failed_ || ahead) {
    restore_until(step);
  }
  if (traced_ && trace_ == nullptr) {
    restore_beginning();
    trace_ = std::make_unique<Trace>();
  }
  return advance(step, nullptr, interrupted);
}

void Execution::complete_trace() {
  if (traced_ && trace_ == nullptr) {
    stand_at(step_, nullptr);
  }
}

Error Execution::execute_next(Location where, int64_t& ns) {
  internals::event_tracer(method_) = trace_ != nullptr ? trace_->tracer() : nullptr;
  running_ = where;
  const int64_t start = ticks_now();
  const Error error = internals::step(method_);
  now_ = ticks_now();
  ns = ns_of_ticks(now_ - start);
  running_ = Location();
  return error;
}

Stopped Execution::advance(uint64_t until, const Watch* watch, const Interrupted& interrupted) {
  const uint64_t from = step_;
  int64_t polled = ticks_now();
  take_log(); // so that what is there when an instruction fails is about it
  while (step_ < until && !at_end()) {
    const Location where = next();
    if (step_ >= kMostSteps) {
      return failure(
          where,
          from,
          std::to_string(kMostSteps) + " instructions were executed, more than the runtime allows");
    }
    int64_t ns = 0;
    const Error error = execute_next(where, ns);
    if (error != Error::Ok) {
      return failure(where, from, describe(error) + "\n" + take_log());
    }
    note(where, ns);
    ++step_;
    total_ns_ += ns;
    apply_patches();
    if (at_end() && trace_ != nullptr) {
      trace_->end(method_);
    }
    if (!again_ && checkpoints_.is_due(total_ns_ - checkpoint_ns_)) {
      keep_checkpoint();
    }
    if (watch != nullptr) {
      Stopped found;
      if (!watch->tests.empty() && holds(watch->tests, where, found)) {
        Stopped result = stopped(Why::kTest, from);
        result.test = found.test;
        result.value = found.value;
        result.count = found.count;
        return result;
      }
      if (has_bit(watch->stops, where)) {
        return stopped(Why::kStop, from);
      }
    }
    if (interrupted && ns_of_ticks(now_ - polled) >= kPollInterval) {
      polled = now_;
      if (interrupted()) {
        return stopped(Why::kInterrupted, from);
      }
    }
  }
  return stopped(step_ < until ? Why::kEnd : Why::kReached, from);
}

Stopped Execution::failure(Location where, uint64_t from, const std::string& text) {
  failed_ = true;
  Stopped result = stopped(Why::kFailed, from);
  result.where = where;
  result.error = text.substr(0, text.find_last_not_of('\n') + 1);
  return result;
}

Stopped Execution::stopped(Why why, uint64_t from) {
  Stopped result;
  result.why = why;
  result.step = step_;
  result.total_ns = total_ns_;
  if (again_) { // nobody is told
    return result;
  }
  if (step_ > 0) {
    result.where = history_.where(step_ - 1);
    result.last_ns = history_.ns(step_ - 1);
  }
  result.ran = history_.ranges(from, step_);
  return result;
}

std::vector<Difference> Execution::take_differences() {
  return std::exchange(differences_, {});
}

/// Compares the step that was just executed with what it was before, if it was.
void Execution::note(Location where, int64_t ns) {
  const auto& found = prints_of(where);
  const bool known = comparable_ && step_ < history_.size();
  if (known && history_.where(step_) == where) {
    uint64_t* before = history_.prints(step_);
    for (size_t i = 0; i < found.size(); ++i) {
      if (before[i] == found[i]) {
        continue;
      }
      tell({step_ + 1, where, outputs_of(where)[i]});
      if (!again_) {
        before[i] = found[i];
        checkpoints_.drop_from(step_ + 1); // they are of what it was before
      }
    }
    if (!again_) {
      history_.ns(step_) = ns;
    }
    return;
  }
  if (known) {
    tell({step_ + 1, where, UINT32_MAX});
  }
  if (again_) {
    comparable_ = false;
    return;
  }
  forget_from(step_);
  history_.append(where, ns, found);
}

void Execution::tell(const Difference& difference) {
  if (differences_.size() < kMostDifferences) {
    differences_.push_back(difference);
  }
}

/// Forgets all steps but the first `count`, and what is behind them.
void Execution::forget_from(uint64_t count) {
  if (count < history_.size()) {
    history_.truncate(count);
    checkpoints_.drop_from(count + 1);
    const auto later = [=](const Patch& patch) { return patch.step > count; };
    patches_.erase(std::remove_if(patches_.begin(), patches_.end(), later), patches_.end());
  }
}

/// Not where there are some ahead: then it has been here.
void Execution::keep_checkpoint() {
  if (!checkpoints_.any_after(step_)) {
    const int64_t start = now_ns();
    Checkpoint checkpoint{state_.take(), total_ns_};
    checkpoints_.add(step_, std::move(checkpoint), now_ns() - start);
  }
  checkpoint_ns_ = total_ns_;
}

bool Execution::holds(const std::vector<Test>& tests, Location where, Stopped& result) const {
  for (size_t i = 0; i < tests.size(); ++i) {
    if (!has_bit(tests[i].instructions, where)) {
      continue;
    }
    for (const uint32_t index : outputs_of(where)) {
      const EValue& output = values_[index];
      result.count = output.isTensor() ? count_of(tests[i], output.toTensor()) : 0;
      if (result.count > 0) {
        result.test = static_cast<int32_t>(i);
        result.value = index;
        return true;
      }
    }
  }
  return false;
}

Dump Execution::dump() {
  if (trace_ != nullptr && !failed_) { // else it has an event of the instruction that failed
    const std::unique_ptr<Trace> finished = std::move(trace_);
    return finished->finish();
  }
  return dump_again();
}

/// Of another run up to here.
Dump Execution::dump_again() {
  const Snapshot snapshot = state_.take();
  const Standing standing{step_, total_ns_, checkpoint_ns_, failed_};
  const auto restore = [&] {
    again_ = false;
    state_.restore(snapshot);
    step_ = standing.step;
    total_ns_ = standing.total_ns;
    checkpoint_ns_ = standing.checkpoint_ns;
    failed_ = standing.failed;
  };
  try {
    trace_again(standing.step);
  } catch (...) {
    restore();
    trace_ = nullptr;
    throw;
  }
  restore();
  const std::unique_ptr<Trace> finished = std::move(trace_);
  return finished->finish();
}

void Execution::trace_again(uint64_t until) {
  again_ = true;
  comparable_ = true;
  restore_beginning();
  trace_ = std::make_unique<Trace>();
  advance(until, nullptr, nullptr);
  comparable_ = true;
}

} // namespace etscope
