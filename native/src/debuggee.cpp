#include "debuggee.h"

#include "failure.h"

namespace etscope {

using executorch::runtime::EValue;

struct Debuggee::State {
  LoadedMethod& method;
};

Debuggee::Debuggee(Session& session, const std::string& method, OutputTable)
    : state_(new State{session.method(method)}) {}

Debuggee::~Debuggee() = default;

const std::string& Debuggee::method() const {
  return state_->method.name();
}

size_t Debuggee::value_count() const {
  return 0;
}

size_t Debuggee::input_count() const {
  return state_->method.input_count();
}

void Debuggee::set_inputs(const std::vector<Value>& values) {
  state_->method.set_inputs(values);
}

Stopped Debuggee::begin(bool) {
  return {};
}

Stopped Debuggee::go(
    uint64_t, const std::vector<uint8_t>&, const std::vector<Test>&, const Interrupted&) {
  return {};
}

Stopped Debuggee::go_to(uint64_t, const Interrupted&) {
  return {};
}

const EValue& Debuggee::value(uint32_t) const {
  throw Failure(kBadInput, "the method has no such value");
}

Statistics Debuggee::statistics(uint32_t) const {
  throw Failure(kBadInput, "the method has no such value");
}

void Debuggee::write(uint32_t, const Value&) {
  throw Failure(kBadInput, "the method has no such value");
}

Core Debuggee::core() {
  return {};
}

Core Debuggee::core_of_crash() noexcept {
  return {};
}

uint64_t Debuggee::step() const noexcept {
  return 0;
}

Location Debuggee::running() const noexcept {
  return {};
}

} // namespace etscope
