// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <executorch/runtime/core/event_tracer.h>

namespace etscope {

using executorch::runtime::EventTracerDebugLogLevel;
using executorch::runtime::EventTracerProfilingLevel;

/// Executions of one method.
struct CallOptions {
  std::string method; // "": the one that the program is run by
  int64_t iterations = 1;
  int64_t warmup = 0;
  std::optional<int> testset_index;
  bool all_cases = false; // --testset-index all
  std::optional<int> bundled_input_index;
  bool fresh = false;
  std::vector<std::string> inputs;
};

/// Sizes of the memory that stands in for malloc's.
struct PoolSizes {
  std::optional<uint32_t> method;
  std::optional<uint32_t> temporary;
  bool planned = false; // the planned buffers are in the method's pool, too
};

struct Options {
  std::string program;
  std::string data;
  std::vector<std::string> libraries;
  std::optional<uint32_t> threads;
  uint64_t seed = 0;
  std::vector<CallOptions> calls;

  std::string etdump_out;
  EventTracerDebugLogLevel debug_level = EventTracerDebugLogLevel::kNoLogging;
  std::string debug_buffer_out;
  size_t debug_buffer_size = 0;
  EventTracerProfilingLevel profiling_level = EventTracerProfilingLevel::kProfileAllEvents;
  std::vector<std::string> delegate_filters;
  bool allocations = false;
  bool memory = false;
  PoolSizes pools;

  std::string outputs_dir;
  std::string result_out;
  bool verify = false;
  double rtol = 1e-3;
  double atol = 1e-5;

  bool help = false;
  bool version = false;
};

/// Throws a Failure with exit code 2 for what cannot be meant.
Options parse_options(int argc, char** argv);

std::string help_text();

} // namespace etscope
