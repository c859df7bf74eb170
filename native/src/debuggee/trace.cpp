#include "debuggee/trace.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "common/failure.h"

namespace etscope {

using executorch::runtime::ChainID;
using executorch::runtime::DebugHandle;
using executorch::runtime::EValue;
using executorch::runtime::EventTracerDebugLogLevel;
using executorch::runtime::EventTracerEntry;
using executorch::runtime::EventTracerProfilingLevel;
using executorch::runtime::LoggedEValueType;

namespace {

constexpr int64_t kIgnored = std::numeric_limits<int64_t>::min(); // no name has that number

} // namespace

EventTracerEntry StepTracer::start_profiling(
    const char* name, ChainID chain_id, DebugHandle debug_handle) {
  if (name != nullptr && std::strcmp(name, "Method::step") == 0) {
    EventTracerEntry ignored = {};
    ignored.event_id = kIgnored;
    return ignored;
  }
  return Tracer::start_profiling(name, chain_id, debug_handle);
}

void StepTracer::end_profiling(EventTracerEntry entry) {
  if (entry.event_id != kIgnored) {
    Tracer::end_profiling(entry);
  }
}

Tracer::Logged StepTracer::log_evalue(const EValue& value, LoggedEValueType type) {
  return type == LoggedEValueType::kProgramOutput ? Logged(false) : Tracer::log_evalue(value, type);
}

void StepTracer::log_program_output(const EValue& value) {
  static_cast<void>(Tracer::log_evalue(value, LoggedEValueType::kProgramOutput));
}

Trace::Trace() {
  tracer_.set_event_tracer_profiling_level(EventTracerProfilingLevel::kProfileAllEvents);
  tracer_.set_event_tracer_debug_level(EventTracerDebugLogLevel::kIntermediateOutputs);
  tracer_.set_data_sink(&debug_buffer_);
  tracer_.create_event_block("Execute");
  execution_ = tracer_.start_profiling(
      "Method::execute",
      executorch::runtime::kUnsetChainId,
      executorch::runtime::kUnsetDebugHandle);
}

void Trace::end(const executorch::runtime::Method& method) {
  end_event();
  for (size_t i = 0; i < method.outputs_size(); ++i) {
    tracer_.log_program_output(method.get_output(i));
  }
}

void Trace::end_event() {
  if (!ended_) {
    ended_ = true;
    tracer_.end_profiling(execution_);
  }
}

Dump Trace::finish() {
  end_event();
  const auto made = tracer_.get_etdump_data();
  const std::unique_ptr<void, void (*)(void*)> owned(made.buf, std::free);
  if (made.buf == nullptr || made.size == 0) {
    throw Failure(kRuntimeFailed, "the runtime gave no ETDump");
  }
  const auto* bytes = static_cast<const uint8_t*>(made.buf);
  return {{bytes, bytes + made.size}, debug_buffer_.take()};
}

} // namespace etscope
