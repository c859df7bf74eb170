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

double parse_real(const std::string& flag, const std::string& text, bool (*allowed)(double)) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !allowed(value)) {
    wrong_flags(flag + " " + text + ": not a number that it may be");
  }
  return value;
}

/// "1,5,9"; -1 stands for what is no id.
std::vector<int64_t> parse_ids(const std::string& flag, const std::string& text) {
  std::vector<int64_t> ids;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    ids.push_back(part == "-1" ? -1 : parse_number<int64_t>(flag, part));
  }
  return ids;
}

std::pair<int64_t, int64_t> parse_range(const std::string& flag, const std::string& text) {
  const auto dots = text.find("..");
  if (dots == std::string::npos) {
    wrong_flags(flag + " " + text + ": it is FIRST..LAST");
  }
  return {
      parse_number<int64_t>(flag, text.substr(0, dots)),
      parse_number<int64_t>(flag, text.substr(dots + 2))};
}

GenerationOptions::Kept parse_kept(const std::string& text) {
  using Kept = GenerationOptions::Kept;
  if (text == "none" || text == "generated" || text == "all") {
    return text == "none" ? Kept::kNone : text == "all" ? Kept::kAll : Kept::kGenerated;
  }
  wrong_flags("--logits " + text + ": it is none, generated or all");
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
      {"A generation: the calls of a prompt in order, then those with --decode for each token",
       {{"--generate",
         "",
         "generate tokens; a call is then executed once, and its --input is also\n"
         "tokens (its --tokens, or the latest one), position (of the first one),\n"
         "positions (of all), or output:METHOD:K (of METHOD's latest call)",
         false,
         [](O& o, C&, S&) { o.generation.asked = true; }},
        {"--context",
         "IDS",
         "the tokens of the whole prompt, 1,5,9; -1 for one that has no id",
         false,
         [](O& o, C&, S& v) { o.generation.context = parse_ids("--context", v); }},
        {"--tokens",
         "IDS",
         "of a call: the tokens that it takes",
         true,
         [](O&, C& c, S& v) { c.tokens = parse_ids("--tokens", v); }},
        {"--count",
         "N",
         "of a call: how many tokens it takes (default: those of --tokens)",
         true,
         [](O&, C& c, S& v) { c.count = parse_number<int64_t>("--count", v); }},
        {"--position",
         "P",
         "of a call: the position of the first of them",
         true,
         [](O&, C& c, S& v) { c.position = parse_number<int64_t>("--position", v); }},
        {"--length",
         "N",
         "of a call: the size of its tensors of tokens and positions, which are\n"
         "filled up with 0 and with the next positions (default: --count; 1)",
         true,
         [](O&, C& c, S& v) { c.length = parse_number<int64_t>("--length", v); }},
        {"--whole-context",
         "",
         "of a call with --decode: it takes all tokens so far; of models without\n"
         "a cache. Without --length it takes any number",
         true,
         [](O&, C& c, S&) { c.whole_context = true; }},
        {"--decode",
         "",
         "of a call: it is executed once for each token that is decoded",
         true,
         [](O&, C& c, S&) { c.decode = true; }},
        {"--max-new-tokens",
         "N",
         "tokens to generate at most (default 1)",
         false,
         [](O& o, C&, S& v) {
           o.generation.max_new_tokens = parse_number<int64_t>("--max-new-tokens", v, 1);
         }},
        {"--end-token",
         "ID",
         "ends a generation; repeatable",
         false,
         [](O& o, C&, S& v) {
           o.generation.end_tokens.push_back(parse_number<int64_t>("--end-token", v));
         }},
        {"--last-position",
         "P",
         "the greatest position that the cache has room for",
         false,
         [](O& o, C&, S& v) {
           o.generation.last_position =
               v == "-1" ? -1 : parse_number<int64_t>("--last-position", v);
         }},
        {"--generations",
         "N",
         "do it so many times, each from position 0 (default 1)",
         false,
         [](O& o, C&, S& v) {
           o.generation.generations = parse_number<int64_t>("--generations", v, 1);
         }},
        {"--temperature",
         "X",
         "0 (default) takes the first of the largest logits; else a token is drawn\n"
         "from the softmax of logits / X",
         false,
         [](O& o, C&, S& v) {
           o.generation.temperature =
               parse_real("--temperature", v, [](double x) { return x >= 0 && !std::isinf(x); });
         }},
        {"--top-k",
         "N",
         "draw from the N likeliest only",
         false,
         [](O& o, C&, S& v) { o.generation.top_k = parse_number<int64_t>("--top-k", v, 1); }},
        {"--top-p",
         "X",
         "and from the fewest of these that have the probability X together",
         false,
         [](O& o, C&, S& v) {
           o.generation.top_p = parse_real("--top-p", v, [](double x) { return x > 0 && x <= 1; });
         }},
        {"--sampler-seed",
         "N",
         "of the draws (default 0)",
         false,
         [](O& o, C&, S& v) {
           o.generation.sampler_seed = parse_number<uint64_t>("--sampler-seed", v);
         }},
        {"--force-tokens",
         "IDS",
         "take these tokens, whatever the logits",
         false,
         [](O& o, C&, S& v) { o.generation.forced = parse_ids("--force-tokens", v); }},
        {"--logits-output",
         "K",
         "the output with the logits (default 0), of the last call of the prompt\n"
         "and of the last one with --decode",
         false,
         [](O& o, C&, S& v) {
           o.generation.logits_output = parse_number<size_t>("--logits-output", v);
         }},
        {"--logits",
         "ROWS",
         "keep logits of the last generation, in --outputs-dir: none (default),\n"
         "generated (those that tokens were chosen from), or all",
         false,
         [](O& o, C&, S& v) { o.generation.kept = parse_kept(v); }},
        {"--values-at",
         "A..B",
         "log values of these calls of each generation only, counted from 0",
         false,
         [](O& o, C&, S& v) { o.generation.values_at = parse_range("--values-at", v); }}}},
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
         "log only intermediate outputs of delegates with a matching name;\nrepeatable",
         false,
         [](O& o, C&, S& v) { o.delegate_filters.push_back(v); }},
        {"--value-filter",
         "REGEX",
         "log only intermediate outputs of instructions with a matching kernel\n"
         "(relu.out; DELEGATE_CALL) or number in their chain; repeatable",
         false,
         [](O& o, C&, S& v) { o.value_filters.push_back(v); }},
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

void check_generation(const Options& options) {
  const GenerationOptions& generation = options.generation;
  bool decodes = false;
  bool prompts = false;
  for (const CallOptions& call : options.calls) {
    if (call.method.empty()) {
      wrong_flags("--generate needs calls: --method");
    }
    decodes = decodes || call.decode;
    prompts = prompts || !call.decode;
    if (decodes && !call.decode) {
      wrong_flags("the calls of the prompt come before those with --decode");
    }
    if (call.iterations != 1 || call.warmup != 0 || call.fresh || call.testset_index ||
        call.all_cases) {
      wrong_flags("a call of a generation takes no --iterations, --warmup, --fresh or test case");
    }
    if (call.length > 0 && static_cast<size_t>(call.length) < call.tokens.size()) {
      wrong_flags("--length is less than the --tokens of a call");
    }
  }
  if (!prompts || !decodes) {
    wrong_flags("--generate needs a call for the prompt, and one with --decode");
  }
  if (options.verify || options.pools.method) {
    wrong_flags("--generate excludes --verify and pools");
  }
  if (generation.kept != GenerationOptions::Kept::kNone && options.outputs_dir.empty()) {
    wrong_flags("--logits needs --outputs-dir");
  }
  if (!generation.forced.empty() &&
      static_cast<int64_t>(generation.forced.size()) < generation.max_new_tokens) {
    wrong_flags("--max-new-tokens is more than there are --force-tokens");
  }
}

void check_options(const Options& options) {
  if (options.program.empty()) {
    wrong_flags("--program is missing");
  }
  if (options.generation.asked) {
    check_generation(options);
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
  if (options.debug_level != EventTracerDebugLogLevel::kIntermediateOutputs) {
    for (const auto& [flag, filters] :
         {std::pair("--delegate-filter", &options.delegate_filters),
          std::pair("--value-filter", &options.value_filters)}) {
      if (!filters->empty()) {
        wrong_flags(std::string(flag) + " needs --debug-level intermediate_outputs");
      }
    }
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
