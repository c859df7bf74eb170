// What the runtime keeps to itself, and a debugger cannot do without. All of it is looked up by the
// compiler: a runtime without such a member is an error of the build.
#pragma once

#include <sys/types.h>
#include <cstddef>

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/executor/method.h>

namespace etscope::internals {

using executorch::runtime::Method;

/// Which instruction is next; chain chain_count(): none.
struct Position {
  size_t chain;
  size_t instruction;
};

/// Executes the next instruction.
executorch::runtime::Error step(Method& method);

Position& position(Method& method);
size_t chain_count(Method& method);

/// Null: nothing is traced, at no cost.
executorch::runtime::EventTracer*& event_tracer(Method& method);

executorch::runtime::EValue* values(Method& method);
size_t value_count(Method& method);

ssize_t& element_count(executorch::aten::TensorImpl& tensor);

} // namespace etscope::internals
