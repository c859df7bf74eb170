// One run of a method after the other, each as a sequence of steps that can be gone back to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "debuggee/debuggee.h"
#include "debuggee/history.h"
#include "debuggee/internals.h"
#include "debuggee/method_state.h"
#include "debuggee/trace.h"

namespace etscope {

/// What a run stops at.
struct Watch {
  const std::vector<uint8_t>& stops; // a bit for each instruction of chain 0
  const std::vector<Test>& tests;
};

class Execution {
 public:
  Execution(Session& session, const std::string& method, OutputTable outputs);

  LoadedMethod& loaded() const {
    return loaded_;
  }
  const executorch::runtime::EValue& value(uint32_t index) const;

  /// Throws for what has no memory, too.
  const executorch::aten::Tensor& tensor(uint32_t index) const;

  size_t value_count() const {
    return value_count_;
  }
  uint64_t step() const {
    return step_;
  }
  Location running() const {
    return running_;
  }
  bool has_failed() const {
    return failed_;
  }
  void check_begun() const;

  void set_inputs(const std::vector<Value>& values);
  /// keep: the state is what the run before left, which must be over; else as after loading.
  void begin(bool traced, bool keep);

  /// Runs until that step, or until something is to be told.
  Stopped advance(uint64_t until, const Watch* watch, const Interrupted& interrupted);

  /// Makes the state what it was after that step, which may be one that never was.
  Stopped stand_at(uint64_t step, const Interrupted& interrupted);

  /// Of a traced run: runs up to here again if not all of it is in the trace.
  void complete_trace();

  /// How it stands after `from` steps and more.
  Stopped stopped(Why why, uint64_t from);

  /// What was found since this was last asked.
  std::vector<Difference> take_differences();

  void write(uint32_t index, Value value);

  /// The dump of the run so far.
  Dump dump();

  /// Whether it is kept anyway, so that it need not run again.
  bool keeps_trace() const {
    return trace_ != nullptr;
  }

 private:
  struct Patch {
    uint64_t step;
    uint32_t index;
    Value value; // tensors in the order of dimensions that they have
  };

  struct Standing {
    uint64_t step = 0;
    int64_t total_ns = 0;
    int64_t checkpoint_ns = 0; // total_ns of the last checkpoint
    bool failed = false;
  };

  std::vector<Region> always_part_of_it() const;
  void restore_beginning();
  void skip_empty_chain();
  void restore_until(uint64_t step);
  executorch::runtime::Error execute_next(Location where, int64_t& ns);
  Stopped failure(Location where, uint64_t from, const std::string& text);
  void note(Location where, int64_t ns);
  void tell(const Difference& difference);
  void forget_from(uint64_t count);
  void keep_checkpoint();
  void apply_patches();
  bool apply(const Patch& patch);
  void check_fits(uint32_t index, const Value& value) const;
  bool holds(const std::vector<Test>& tests, Location where, Stopped& result) const;
  Dump dump_again();
  void trace_again(uint64_t until);

  bool at_end() const;
  Location next() const;
  const std::vector<uint32_t>& outputs_of(Location where) const;
  const std::vector<uint64_t>& prints_of(Location where);

  const OutputTable table_;
  Arenas arenas_;
  LoadedMethod& loaded_;
  internals::Method& method_;
  executorch::runtime::EValue* const values_;
  const size_t value_count_;
  MethodState state_;
  const Snapshot as_loaded_;
  std::optional<Snapshot> as_kept_; // what the run before left, if this one goes on from it

  std::optional<std::vector<Value>> next_inputs_;
  Inputs inputs_; // of this run
  bool begun_ = false;
  uint64_t step_ = 0;
  int64_t total_ns_ = 0;
  int64_t checkpoint_ns_ = 0; // total_ns_ when the last one was kept, or passed
  bool failed_ = false; // the next instruction has, and may have left anything behind
  bool again_ = false; // it runs for a dump, and nothing is kept
  bool comparable_ = true; // what runs again has not left the way it went
  Location running_;
  int64_t now_ = 0; // when the last instruction ended, in ticks
  History history_;
  Checkpoints checkpoints_;
  std::vector<Patch> patches_;
  std::vector<Difference> differences_; // not told yet
  std::vector<uint64_t> prints_;
  bool traced_ = false;
  std::unique_ptr<Trace> trace_; // null: nothing is traced now
};

} // namespace etscope
