// A method that is run instruction by instruction, forth and back, and looked into.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/session.h"
#include "common/tensor.h"
#include "debuggee/location.h"
#include "debuggee/statistics.h"

namespace etscope {

/// Of each instruction of chain 0 the tensors that it writes, as indices of the method's values.
using OutputTable = std::vector<std::vector<uint32_t>>;

enum class Why : uint8_t {
  kBegun = 0,
  kStop = 1,
  kTest = 2,
  kMostSteps = 3,
  kEnd = 4,
  kInterrupted = 5,
  kFailed = 6,
  kReached = 7,
};

enum class Condition : uint8_t { kNan = 1, kInf = 2, kBelow = 3, kAbove = 4 };

struct Test {
  Condition condition = Condition::kNan;
  double bound = 0;
  std::vector<uint8_t> instructions; // a bit for each of chain 0
};

/// Where something ran again and gave something else; value UINT32_MAX: another instruction ran.
struct Difference {
  uint64_t step;
  Location where;
  uint32_t value;
};

struct Stopped {
  Why why = Why::kBegun;
  uint64_t step = 0;
  Location where; // the last that was executed, or the one that failed
  int64_t last_ns = 0;
  int64_t total_ns = 0;
  std::vector<Range> ran;
  int32_t test = -1;
  uint32_t value = 0;
  uint64_t count = 0;
  std::vector<Difference> differences; // 16 at most
  std::string error;
};

struct Core {
  std::vector<uint8_t> etdump;
  std::vector<uint8_t> debug_buffer;
  std::vector<Difference> differences;
};

/// Asked about once a millisecond while something runs.
using Interrupted = std::function<bool()>;

/// Throws a Failure for what cannot be done; then nothing has changed. Its code is kUsage for what
/// cannot be done now, kBadInput for what never can, kRuntimeFailed for what the runtime refuses.
class Debuggee {
 public:
  /// Loads the method ("": the one that a program is run by) with memory of its own. The session
  /// must outlive it, and loads the method for nobody else.
  Debuggee(Session& session, const std::string& method, OutputTable outputs);
  ~Debuggee();

  const std::string& method() const;
  size_t value_count() const;
  size_t input_count() const;

  void set_inputs(const std::vector<Value>& values);

  /// keep: go on from the state that the run before left, which must be over.
  Stopped begin(bool traced, bool keep);
  Stopped go(
      uint64_t most_steps,
      const std::vector<uint8_t>& stops,
      const std::vector<Test>& tests,
      const Interrupted& interrupted);
  Stopped go_to(uint64_t step, const Interrupted& interrupted);

  /// The runtime's own value; throws for an index that is not there.
  const executorch::runtime::EValue& value(uint32_t index) const;

  Statistics statistics(uint32_t index) const;

  /// All or nothing; shape, type and kind must be the value's own. Tensors come in any order of
  /// dimensions. After an instruction that failed, the state is first made what it was before it.
  void write(uint32_t index, const Value& value);

  /// The dump of the run up to here; runs it again if it is not traced. The state stays.
  Core core();

  /// For the handler of a crash: whether there is a dump, the dump as far as it was kept (empty if
  /// it cannot be made any more), and where the run is.
  bool keeps_trace() const noexcept;
  Core core_of_crash() noexcept;
  uint64_t step() const noexcept;
  Location running() const noexcept; // the instruction that runs now

 private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace etscope
