// Executes what the command line asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/session.h"
#include "common/tensor.h"
#include "runner/verify.h"

namespace etscope {

struct CallRecord {
  std::string method;
  int64_t load_ns = 0; // 0 when the method was loaded before
  std::vector<int64_t> warmup_ns;
  std::vector<int64_t> samples_ns;
  std::vector<Value> outputs; // of the last execution
};

/// Tokens that were generated, and their calls in the order in which they ran.
struct GenerationRecord {
  std::vector<std::vector<int64_t>> tokens; // of each generation
  std::vector<std::string> stopped_by;
  std::vector<int64_t> run; // the generation of each call
  std::vector<int64_t> start_ns;
  std::vector<int64_t> execute_ns;
  std::vector<int64_t> sampling_ns;
  std::vector<float> logits; // rows of the last generation
  std::vector<int64_t> logits_positions; // of the last token that each row is of
};

struct Record {
  std::optional<int64_t> resident_before; // bytes, before the program was read
  int64_t load_ns = 0;
  std::vector<CallRecord> calls;
  std::vector<Verdict> verification;
  std::optional<GenerationRecord> generation;
};

Record run_calls(Session& session, const Options& options);

} // namespace etscope
