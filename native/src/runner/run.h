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

struct Record {
  std::optional<int64_t> resident_before; // bytes, before the program was read
  int64_t load_ns = 0;
  std::vector<CallRecord> calls;
  std::vector<Verdict> verification;
};

Record run_calls(Session& session, const Options& options);

} // namespace etscope
