#include "runner/run.h"

#include "common/failure.h"
#include "common/input_spec.h"
#include "common/platform.h"

namespace etscope {

namespace {

/// A call with `--testset-index all` as one call a case.
std::vector<CallOptions> expanded(Session& session, const CallOptions& call) {
  if (!call.all_cases) {
    return {call};
  }
  const std::string& method = session.method(call.method).name();
  std::vector<CallOptions> calls;
  for (size_t i = 0; i < session.bundle()->case_count(method); ++i) {
    calls.push_back(call);
    calls.back().testset_index = static_cast<int>(i);
  }
  if (calls.empty()) {
    throw Failure(kBadInput, "the bundle has no test cases for method '" + method + "'");
  }
  return calls;
}

/// The test case that a call is run on, if it is.
std::optional<int> case_of(
    const Session& session,
    const LoadedMethod& method,
    const Options& options,
    const CallOptions& call) {
  if (!call.inputs.empty() || session.bundle() == nullptr) {
    return std::nullopt;
  }
  if (method.input_count() == 0 && !call.testset_index && !options.verify) {
    return std::nullopt; // it needs none, and there may be none
  }
  return call.testset_index.value_or(0);
}

std::vector<Value> inputs_of(
    const Session& session,
    const LoadedMethod& method,
    const CallOptions& call,
    std::optional<int> test_case,
    uint64_t seed) {
  if (test_case) {
    return session.bundle()->inputs(
        method.name(), static_cast<size_t>(*test_case), method.input_count());
  }
  if (call.inputs.empty()) {
    return method.generate_inputs(seed);
  }
  std::vector<Value> values;
  for (const std::string& spec : call.inputs) {
    values.push_back(parse_input(spec));
  }
  return values;
}

std::vector<int64_t> execute(LoadedMethod& method, int64_t count) {
  std::vector<int64_t> times(static_cast<size_t>(count));
  for (int64_t& time : times) {
    time = method.execute();
  }
  return times;
}

CallRecord run_call(
    Session& session, const CallOptions& call, const Options& options, Record& record) {
  const int64_t start = now_ns();
  CallRecord result;
  const bool fresh = call.fresh || (session.bundle() != nullptr && call.inputs.empty());
  if (session.tracer() != nullptr) {
    session.tracer()->set_input_index(-1); // loading is of no test case
  }
  LoadedMethod& method = fresh ? session.fresh_method(call.method) : session.method(call.method);
  result.method = method.name();
  result.load_ns = now_ns() - start;

  MemoryMeter* meter = session.meter();
  const auto end_phase = [&](const char* name) {
    if (meter != nullptr) {
      meter->end_phase(name, method.name());
    }
  };
  if (meter != nullptr) {
    meter->begin_method(method.name());
  }
  const auto test_case = case_of(session, method, options, call);
  method.set_inputs(inputs_of(session, method, call, test_case, options.seed));
  end_phase("inputs");
  if (session.tracer() != nullptr) {
    session.tracer()->set_input_index(call.bundled_input_index.value_or(test_case.value_or(-1)));
  }
  set_activity("executing method '" + method.name() + "'");
  std::vector<int64_t> times = execute(method, 1);
  end_phase("first execution");
  if (fresh) {
    result.outputs = method.outputs();
  }
  const auto more = execute(method, call.warmup + call.iterations - 1);
  if (!more.empty()) {
    end_phase("later executions");
  }
  times.insert(times.end(), more.begin(), more.end());
  result.warmup_ns.assign(times.begin(), times.begin() + call.warmup);
  result.samples_ns.assign(times.begin() + call.warmup, times.end());
  if (!fresh) {
    result.outputs = method.outputs();
  }

  if (options.verify) {
    const auto index = static_cast<size_t>(*test_case);
    const auto expected = session.bundle()->expected(method.name(), index, result.outputs.size());
    record.verification.push_back(compare(result.outputs, expected, options.rtol, options.atol));
    record.verification.back().method = method.name();
    record.verification.back().index = index;
  }
  return result;
}

void check_bundle(const Options& options) {
  for (const CallOptions& call : options.calls) {
    if (call.testset_index || call.all_cases || options.verify) {
      throw Failure(
          kUsage,
          "--testset-index and --verify need a bundled program; " + options.program + " is none");
    }
  }
}

} // namespace

Record run_calls(Session& session, const Options& options) {
  if (session.bundle() == nullptr) {
    check_bundle(options);
  }
  Record record;
  record.load_ns = session.load_ns();
  session.load_sharing(options.calls);
  for (const CallOptions& call : options.calls) {
    for (const CallOptions& one : expanded(session, call)) {
      record.calls.push_back(run_call(session, one, options, record));
    }
  }
  return record;
}

} // namespace etscope
