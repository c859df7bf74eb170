#include "common/options.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "common/failure.h"
#include "common/flags.h"
#include "common/input_spec.h"

namespace etscope {

namespace {

template <typename T>
T parse_number(const std::string& flag, const std::string& text, T least = 0) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = std::strtoull(text.c_str(), &end, 10);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || errno != 0 ||
      number > static_cast<unsigned long long>(std::numeric_limits<T>::max())) {
    wrong_flags(flag + " " + text + ": not a number");
  }
  if (static_cast<T>(number) < least) {
    wrong_flags(flag + " " + text + ": it must be at least " + std::to_string(least));
  }
  return static_cast<T>(number);
}

double parse_tolerance(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0) || std::isinf(value)) {
    wrong_flags(flag + " " + text + ": not a tolerance");
  }
  return value;
}

EventTracerDebugLogLevel parse_debug_level(const std::string& text) {
  if (text == "none") {
    return EventTracerDebugLogLevel::kNoLogging;
  }
  if (text == "program_outputs") {
    return EventTracerDebugLogLevel::kProgramOutputs;
  }
  if (text == "intermediate_outputs") {
    return EventTracerDebugLogLevel::kIntermediateOutputs;
  }
  wrong_flags("--debug-level " + text + ": it is none, program_outputs or intermediate_outputs");
}

EventTracerProfilingLevel parse_profiling_level(const std::string& text) {
  if (text == "all") {
    return EventTracerProfilingLevel::kProfileAllEvents;
  }
  if (text == "method") {
    return EventTracerProfilingLevel::kProfileMethodOnly;
  }
  wrong_flags("--profiling-level " + text + ": it is all or method");
}

/// A flag of the command line; `value` is the name of what follows it, "" when nothing does.
struct Flag {
  const char* name;
  const char* value;
  const char* help;
  bool of_call;
  std::function<void(Options&, CallOptions&, const std::string&)> set;
};

struct Group {
  const char* title;
  std::vector<Flag> flags;
};

const std::vector<Group>& groups() {
  using O = Options;
  using C = CallOptions;
  using S = const std::string;
  static const std::vector<Group> all = {
      {"What to run",
       {{"--program",
         "FILE",
         "the program (.pte), or the bundled program (.bpte); required",
         false,
         [](O& o, C&, S& v) { o.program = v; }},
        {"--data",
         "FILE",
         "external tensors of the program (.ptd)",
         false,
         [](O& o, C&, S& v) { o.data = v; }},
        {"--library",
         "FILE",
         "a shared library with operators or backends; repeatable",
         false,
         [](O& o, C&, S& v) { o.libraries.push_back(v); }},
        {"--threads",
         "N",
         "threads of the runtime's pool (default: the runtime's choice)",
         false,
         [](O& o, C&, S& v) { o.threads = parse_number<uint32_t>("--threads", v, 1); }},
        {"--seed",
         "N",
         "of generated inputs (default 0)",
         false,
         [](O& o, C&, S& v) { o.seed = parse_number<uint64_t>("--seed", v); }}}},
      {"A call, and what belongs to it: --method comes first, and may come again",
       {{"--method",
         "NAME",
         "begins a call (default: one call of forward, or of the first method)",
         true,
         nullptr},
        {"--iterations",
         "N",
         "executions that are timed (default 1)",
         true,
         [](O&, C& c, S& v) { c.iterations = parse_number<int64_t>("--iterations", v, 1); }},
        {"--warmup",
         "N",
         "executions before them, whose times are kept apart (default 0)",
         true,
         [](O&, C& c, S& v) { c.warmup = parse_number<int64_t>("--warmup", v); }},
        {"--input",
         "SPEC",
         "one input, repeatable: TYPE:SIZES:FILE[:DIM_ORDER], int:5, double:0.5,\n"
         "bool:true or none; of float32:1,3,16,16:x.raw the file has the bytes.\n"
         "Without any, a bundled program is run on a test case, another one on\n"
         "generated values",
         true,
         [](O&, C& c, S& v) { c.inputs.push_back(v); }},
        {"--testset-index",
         "K",
         "the test case of a bundled program, or all (default 0)",
         true,
         [](O&, C& c, S& v) {
           if (v == "all") {
             c.all_cases = true;
           } else {
             c.testset_index = parse_number<int>("--testset-index", v);
           }
         }},
        {"--bundled-input-index",
         "K",
         "the index that the dump names for these executions (default: that of\n"
         "the test case; else -1, none)",
         true,
         [](O&, C& c, S& v) {
           c.bundled_input_index = v == "-1" ? -1 : parse_number<int>("--bundled-input-index", v);
         }},
        {"--fresh",
         "",
         "load the method anew, so that no earlier call has changed its state, and\n"
         "answer with the outputs of the first execution; test cases always are",
         true,
         [](O&, C& c, S&) { c.fresh = true; }}}},
      {"What to record",
       {{"--etdump-out",
         "FILE",
         "write an ETDump",
         false,
         [](O& o, C&, S& v) { o.etdump_out = v; }},
        {"--profiling-level",
         "LEVEL",
         "all events (default), or method only",
         false,
         [](O& o, C&, S& v) { o.profiling_level = parse_profiling_level(v); }},
        {"--debug-level",
         "LEVEL",
         "values to log: none (default), program_outputs, intermediate_outputs",
         false,
         [](O& o, C&, S& v) { o.debug_level = parse_debug_level(v); }},
        {"--debug-buffer-out",
         "FILE",
         "where logged tensors go; required when values are logged",
         false,
         [](O& o, C&, S& v) { o.debug_buffer_out = v; }},
        {"--debug-buffer-size",
         "N",
         "bytes that it may have (default 0: no limit)",
         false,
         [](O& o, C&, S& v) {
           o.debug_buffer_size = parse_number<size_t>("--debug-buffer-size", v);
         }},
        {"--delegate-filter",
         "REGEX",
         "of delegates' intermediate outputs log only those whose whole name\n"
         "matches; repeatable",
         false,
         [](O& o, C&, S& v) { o.delegate_filters.push_back(v); }},
        {"--allocations",
         "",
         "log the runtime's allocations",
         false,
         [](O& o, C&, S&) { o.allocations = true; }},
        {"--memory",
         "",
         "measure what takes the memory of this process, by owner and instruction,\n"
         "for --result-out; times are not those of a run without it",
         false,
         [](O& o, C&, S&) { o.memory = true; }}}},
      {"Pools of memory in place of malloc, as on a microcontroller; for one call",
       {{"--method-pool",
         "BYTES",
         "what the runtime makes a method in",
         false,
         [](O& o, C&, S& v) { o.pools.method = parse_number<uint32_t>("--method-pool", v); }},
        {"--temporary-pool",
         "BYTES",
         "what kernels work in; empty again after each instruction",
         false,
         [](O& o, C&, S& v) { o.pools.temporary = parse_number<uint32_t>("--temporary-pool", v); }},
        {"--planned-in-pool",
         "",
         "take the planned buffers, and a list of the inputs, from the method's\n"
         "pool, as the runners in ExecuTorch's examples do",
         false,
         [](O& o, C&, S&) { o.pools.planned = true; }}}},
      {"What to answer",
       {{"--result-out",
         "FILE",
         "write times and outputs as JSON",
         false,
         [](O& o, C&, S& v) { o.result_out = v; }},
        {"--outputs-dir",
         "DIR",
         "write the outputs of each call that are tensors: output-CALL-INDEX.raw",
         false,
         [](O& o, C&, S& v) { o.outputs_dir = v; }},
        {"--verify",
         "",
         "compare with the outputs of the bundled program's test cases",
         false,
         [](O& o, C&, S&) { o.verify = true; }},
        {"--rtol",
         "X",
         "relative tolerance of --verify (default 1e-3)",
         false,
         [](O& o, C&, S& v) { o.rtol = parse_tolerance("--rtol", v); }},
        {"--atol",
         "X",
         "absolute tolerance of --verify (default 1e-5)",
         false,
         [](O& o, C&, S& v) { o.atol = parse_tolerance("--atol", v); }}}},
      {"Other",
       {{"--help", "", "print this", false, [](O& o, C&, S&) { o.help = true; }},
        {"--version",
         "",
         "print the version of ExecuTorch that this was built with",
         false,
         [](O& o, C&, S&) { o.version = true; }}}}};
  return all;
}

const Flag& flag_named(const std::string& name) {
  for (const Group& group : groups()) {
    for (const Flag& flag : group.flags) {
      if (name == flag.name) {
        return flag;
      }
    }
  }
  wrong_flags("unknown flag " + name);
}

/// The calls in the making: there is one that no --method began until a --method comes.
class Calls {
 public:
  explicit Calls(std::vector<CallOptions>& calls) : calls_(calls) {}

  void begin(const std::string& method) {
    if (!calls_.empty() && !named_) {
      wrong_flags("flags of a call come after its --method");
    }
    named_ = true;
    calls_.emplace_back();
    calls_.back().method = method;
  }

  CallOptions& current() {
    if (calls_.empty()) {
      calls_.emplace_back();
    }
    return calls_.back();
  }

 private:
  std::vector<CallOptions>& calls_;
  bool named_ = false;
};

void check_call(const Options& options, const CallOptions& call) {
  const bool of_bundle = call.testset_index || call.all_cases;
  if (of_bundle && !call.inputs.empty()) {
    wrong_flags("--testset-index and --input exclude each other");
  }
  if (call.testset_index && call.all_cases) {
    wrong_flags("--testset-index is given twice");
  }
  if (options.verify && !call.inputs.empty()) {
    wrong_flags("--verify and --input exclude each other: test cases are what is verified");
  }
}

void check_options(const Options& options) {
  if (options.program.empty()) {
    wrong_flags("--program is missing");
  }
  for (const CallOptions& call : options.calls) {
    check_call(options, call);
  }
  const bool logs = options.debug_level != EventTracerDebugLogLevel::kNoLogging;
  if (logs && options.debug_buffer_out.empty()) {
    wrong_flags("--debug-level needs --debug-buffer-out");
  }
  if (!logs && (!options.debug_buffer_out.empty() || options.debug_buffer_size != 0)) {
    wrong_flags("--debug-buffer-out and --debug-buffer-size need a --debug-level");
  }
  if (options.etdump_out.empty() &&
      (logs || options.allocations ||
       options.profiling_level != EventTracerProfilingLevel::kProfileAllEvents)) {
    wrong_flags("--debug-level, --profiling-level and --allocations need --etdump-out");
  }
  if (options.memory && (!options.etdump_out.empty() || options.result_out.empty())) {
    wrong_flags("--memory needs --result-out, and excludes --etdump-out");
  }
  const PoolSizes& pools = options.pools;
  if (pools.method.has_value() != pools.temporary.has_value() || (pools.planned && !pools.method)) {
    wrong_flags(
        "--method-pool and --temporary-pool come together, and --planned-in-pool with them");
  }
  if (pools.method &&
      (!options.etdump_out.empty() || options.memory || options.calls.size() != 1 ||
       options.calls[0].all_cases)) {
    wrong_flags("pools are for one call, and exclude --etdump-out and --memory");
  }
  if (!options.delegate_filters.empty() &&
      options.debug_level != EventTracerDebugLogLevel::kIntermediateOutputs) {
    wrong_flags("--delegate-filter needs --debug-level intermediate_outputs");
  }
}

} // namespace

namespace {

/// The arguments, with those in a file, one a line, in place of `@FILE`.
std::vector<std::string> unfolded(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] != '@') {
      arguments.emplace_back(argv[i]);
      continue;
    }
    std::ifstream file(argv[i] + 1);
    if (!file) {
      throw Failure(kBadInput, std::string("cannot read ") + (argv[i] + 1));
    }
    for (std::string line; std::getline(file, line);) {
      arguments.push_back(line);
    }
  }
  return arguments;
}

} // namespace

Options parse_options(int argc, char** argv) {
  const auto arguments = unfolded(argc, argv);
  Options options;
  Calls calls(options.calls);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const SplitFlag split(arguments[i]);
    const Flag& flag = flag_named(split.name);
    const std::string value = split.value_of(
        flag.value, [&] { return ++i < arguments.size() ? &arguments[i] : nullptr; });
    if (flag.set == nullptr) {
      calls.begin(value);
    } else {
      CallOptions none;
      flag.set(options, flag.of_call ? calls.current() : none, value);
    }
  }
  if (options.help || options.version) {
    return options;
  }
  calls.current();
  check_options(options);
  return options;
}

std::string help_text() {
  constexpr size_t kColumn = 28;
  std::ostringstream text;
  text << "usage: etscope-runner --program FILE [flags]\n\n"
          "Runs a program on the ExecuTorch runtime and writes down what happened.\n"
          "@FILE stands for the flags and values in FILE, one a line.\n";
  for (const Group& group : groups()) {
    text << "\n" << group.title << ":\n";
    for (const Flag& flag : group.flags) {
      text << help_line(flag.name, flag.value, flag.help, kColumn);
    }
  }
  text << "\nExit codes: 0 fine, 1 outputs are not those expected (--verify), 2 wrong flags,\n"
          "3 bad files or inputs, 5 the runtime failed, 6 --debug-buffer-size is too small,\n"
          "7 a pool is too small.\n";
  return text.str();
}

} // namespace etscope
