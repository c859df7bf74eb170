// The dump of a method that is stepped, as if it had been executed at once.
#pragma once

#include <cstdint>
#include <vector>

#include <executorch/runtime/executor/method.h>

#include "common/data_sink.h"
#include "common/tracer.h"

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

/// Bytes of values that a dump may have: they are in memory, and go over a connection.
constexpr size_t kMostValues = size_t{2} << 30;

/// One execution: all events, and what every instruction writes.
class Trace {
 public:
  Trace();

  /// For the next instruction.
  executorch::runtime::EventTracer* tracer() {
    debug_buffer_.next();
    return &tracer_;
  }

  /// The method has ended.
  void end(const executorch::runtime::Method& method);

  /// The tensor that has its bytes there was given others after the instruction.
  void replace(const void* data, const std::vector<uint8_t>& bytes) {
    debug_buffer_.replace(data, bytes);
  }

  /// The files so far; nothing may be traced after it. Throws when there is not enough memory.
  Dump finish();

 private:
  void end_event();

  DebugBuffer debug_buffer_{kMostValues};
  StepTracer tracer_;
  executorch::runtime::EventTracerEntry execution_;
  bool ended_ = false;
};

} // namespace etscope
