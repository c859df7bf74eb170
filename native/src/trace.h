// The dump of a method that is stepped, as if it had been executed at once.
#pragma once

#include <cstdint>
#include <vector>

#include <executorch/runtime/executor/method.h>

#include "data_sink.h"
#include "tracer.h"

namespace etscope {

struct Dump {
  std::vector<uint8_t> etdump;
  std::vector<uint8_t> debug_buffer;
};

/// A Tracer that hears nothing of steps: neither their events, nor the program's outputs, which
/// Method::step logs as outputs of the last instruction.
class StepTracer : public Tracer {
 public:
  executorch::runtime::EventTracerEntry start_profiling(
      const char* name,
      executorch::runtime::ChainID chain_id,
      executorch::runtime::DebugHandle debug_handle) override;
  void end_profiling(executorch::runtime::EventTracerEntry entry) override;

  Logged log_evalue(
      const executorch::runtime::EValue& value,
      executorch::runtime::LoggedEValueType type) override;

  void log_program_output(const executorch::runtime::EValue& value);
};

/// One execution: all events, and what every instruction writes.
class Trace {
 public:
  Trace();

  executorch::runtime::EventTracer* tracer() {
    return &tracer_;
  }

  /// The method has ended.
  void end(const executorch::runtime::Method& method);

  /// The files so far; nothing may be traced after it. Throws when there is not enough memory.
  Dump finish();

 private:
  void end_event();

  DebugBuffer debug_buffer_;
  StepTracer tracer_;
  executorch::runtime::EventTracerEntry execution_;
  bool ended_ = false;
};

} // namespace etscope
