#include "debuggee/internals.h"

namespace etscope::internals {

using executorch::aten::TensorImpl;
using executorch::runtime::EValue;
using executorch::runtime::EventTracer;

namespace {

// Only an explicit instantiation may name a private member, hence the detour over friends.
void* position_of(Method& method);
size_t& chain_count_of(Method& method);
EventTracer*& event_tracer_of(Method& method);
EValue*& values_of(Method& method);
size_t& value_count_of(Method& method);
ssize_t& element_count_of(TensorImpl& tensor);

template <auto Member>
struct StepState { // its type has no name here
  friend void* position_of(Method& method) {
    static_assert(sizeof(method.*Member) == sizeof(Position));
    return &(method.*Member);
  }
};
template struct StepState<&Method::step_state_>;

template <auto Chains, auto Tracer, auto Values, auto ValueCount>
struct Members {
  friend size_t& chain_count_of(Method& method) {
    return method.*Chains;
  }
  friend EventTracer*& event_tracer_of(Method& method) {
    return method.*Tracer;
  }
  friend EValue*& values_of(Method& method) {
    return method.*Values;
  }
  friend size_t& value_count_of(Method& method) {
    return method.*ValueCount;
  }
};
template struct Members<
    &Method::n_chains_,
    &Method::event_tracer_,
    &Method::values_,
    &Method::n_value_>;

template <auto Member>
struct ElementCount {
  friend ssize_t& element_count_of(TensorImpl& tensor) {
    return tensor.*Member;
  }
};
template struct ElementCount<&TensorImpl::numel_>;

} // namespace

executorch::runtime::Error step(Method& method) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // it is marked as experimental
  return method.step();
#pragma GCC diagnostic pop
}

Position& position(Method& method) {
  return *static_cast<Position*>(position_of(method));
}

size_t chain_count(Method& method) {
  return chain_count_of(method);
}

EventTracer*& event_tracer(Method& method) {
  return event_tracer_of(method);
}

EValue* values(Method& method) {
  return values_of(method);
}

size_t value_count(Method& method) {
  return value_count_of(method);
}

ssize_t& element_count(TensorImpl& tensor) {
  return element_count_of(tensor);
}

} // namespace etscope::internals
