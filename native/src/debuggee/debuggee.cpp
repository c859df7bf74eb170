#include "debuggee/debuggee.h"

#include <utility>

#include "common/failure.h"
#include "debuggee/execution.h"

namespace etscope {

struct Debuggee::State : Execution {
  using Execution::Execution;
};

Debuggee::Debuggee(Session& session, const std::string& method, OutputTable outputs)
    : state_(std::make_unique<State>(session, method, std::move(outputs))) {}

Debuggee::~Debuggee() = default;

const std::string& Debuggee::method() const {
  return state_->loaded().name();
}

size_t Debuggee::value_count() const {
  return state_->value_count();
}

size_t Debuggee::input_count() const {
  return state_->loaded().input_count();
}

void Debuggee::set_inputs(const std::vector<Value>& values) {
  state_->set_inputs(values);
}

Stopped Debuggee::begin(bool traced, bool keep) {
  state_->begin(traced, keep);
  return state_->stopped(Why::kBegun, 0);
}

Stopped Debuggee::go(
    uint64_t most_steps,
    const std::vector<uint8_t>& stops,
    const std::vector<Test>& tests,
    const Interrupted& interrupted) {
  state_->check_begun();
  if (state_->has_failed()) {
    throw Failure(kUsage, "the next instruction has failed; the run can only go back");
  }
  state_->complete_trace();
  const uint64_t from = state_->step();
  const bool endless = most_steps == 0 || most_steps > UINT64_MAX - from;
  const Watch watch{stops, tests};
  Stopped result = state_->advance(endless ? UINT64_MAX : from + most_steps, &watch, interrupted);
  if (result.why == Why::kReached) {
    result.why = Why::kMostSteps;
  }
  result.differences = state_->take_differences();
  return result;
}

Stopped Debuggee::go_to(uint64_t step, const Interrupted& interrupted) {
  state_->check_begun();
  const uint64_t from = state_->step();
  if (state_->has_failed() && step > from) {
    throw Failure(kUsage, "the next instruction has failed; the run can only go back");
  }
  Stopped result = state_->stand_at(step, interrupted);
  result.ran = state_->stopped(result.why, from).ran; // restoring may have skipped a part
  result.differences = state_->take_differences();
  return result;
}

const executorch::runtime::EValue& Debuggee::value(uint32_t index) const {
  return state_->value(index);
}

Statistics Debuggee::statistics(uint32_t index) const {
  return statistics_of(state_->tensor(index));
}

void Debuggee::write(uint32_t index, const Value& value) {
  state_->write(index, value);
}

Core Debuggee::core() {
  state_->check_begun();
  Dump dump = state_->dump();
  return {std::move(dump.etdump), std::move(dump.debug_buffer), state_->take_differences()};
}

bool Debuggee::keeps_trace() const noexcept {
  return state_->keeps_trace();
}

Core Debuggee::core_of_crash() noexcept {
  try {
    if (state_->keeps_trace()) {
      Dump dump = state_->dump();
      return {std::move(dump.etdump), std::move(dump.debug_buffer), {}};
    }
  } catch (...) { // a crash leaves no core then
  }
  return {};
}

uint64_t Debuggee::step() const noexcept {
  return state_->step();
}

Location Debuggee::running() const noexcept {
  return state_->running();
}

} // namespace etscope
