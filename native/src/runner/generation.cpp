#include "runner/generation.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>

#include "common/failure.h"
#include "common/input_spec.h"
#include "common/platform.h"
#include "runner/sampler.h"

namespace etscope {

using executorch::aten::Tensor;
using executorch::extension::make_tensor_ptr;
using executorch::extension::TensorPtr;
using executorch::runtime::EValue;

namespace {

volatile std::sig_atomic_t interrupted = 0;

void catch_interrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

/// Integers of 32 or 64 bits that a tensor has, [count] or [1, count].
class Numbers {
 public:
  Numbers(ScalarType type, bool is_row) : type_(type), is_row_(is_row) {}

  void resize(size_t count) {
    bytes_.assign(count * element_size(type_), 0);
    const auto size = static_cast<SizesType>(count);
    tensor_ = make_tensor_ptr(
        is_row_ ? std::vector<SizesType>{1, size} : std::vector<SizesType>{size},
        bytes_.data(),
        default_dim_order(is_row_ ? 2 : 1),
        is_row_ ? std::vector<StridesType>{size, 1} : std::vector<StridesType>{1},
        type_);
  }

  size_t size() const {
    return bytes_.size() / element_size(type_);
  }

  void set(size_t index, int64_t number) {
    if (type_ == ScalarType::Int) {
      const auto narrow = static_cast<int32_t>(number);
      std::memcpy(&bytes_[index * sizeof(narrow)], &narrow, sizeof(narrow));
    } else {
      std::memcpy(&bytes_[index * sizeof(number)], &number, sizeof(number));
    }
  }

  EValue value() const {
    return EValue(tensor_);
  }

 private:
  const ScalarType type_;
  const bool is_row_;
  std::vector<uint8_t> bytes_;
  TensorPtr tensor_;
};

/// One call of the plan, with the memory of its inputs.
class Step {
 public:
  Step(Session& session, const CallOptions& call)
      : call_(call), method_(session.method(call.method)) {
    if (call.inputs.size() != method_.input_count()) {
      throw Failure(
          kBadInput,
          "method '" + method_.name() + "' takes " + std::to_string(method_.input_count()) +
              " inputs, not " + std::to_string(call.inputs.size()));
    }
    const size_t length = call.length > 0 ? static_cast<size_t>(call.length)
                                          : std::max<size_t>(call.tokens.size(), 1);
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      add_input(session, call.inputs[i], i, length);
    }
    set_tokens(call.tokens);
    set_position(std::max<int64_t>(call.position, 0));
  }

  const CallOptions& call() const {
    return call_;
  }

  LoadedMethod& method() const {
    return method_;
  }

  /// What it takes next, of a call with --decode.
  void take(const std::vector<int64_t>& context) {
    if (call_.whole_context) {
      if (call_.length == 0) {
        tokens_->resize(context.size());
      }
      set_tokens(context);
    } else if (tokens_) {
      tokens_->set(0, context.back());
    }
    if (!call_.whole_context) {
      set_position(static_cast<int64_t>(context.size()) - 1);
    }
  }

  /// The tokens that it took, with that context.
  size_t count(const std::vector<int64_t>& context) const {
    if (call_.decode) {
      return call_.whole_context ? context.size() : 1;
    }
    return call_.count > 0 ? static_cast<size_t>(call_.count) : call_.tokens.size();
  }

  /// The position of the first of them.
  int64_t position(const std::vector<int64_t>& context) const {
    if (call_.decode) {
      return call_.whole_context ? 0 : static_cast<int64_t>(context.size()) - 1;
    }
    return call_.position;
  }

  void set_inputs() {
    auto& method = method_.method();
    for (size_t i = 0; i < sources_.size(); ++i) {
      const auto& [source, output] = sources_[i];
      const EValue value = source != nullptr ? source->method().get_output(output)
          : numbers_[i] != nullptr           ? numbers_[i]->value()
                                             : files_.values[files_at_[i]];
      const auto error = method.set_input(value, i);
      if (error != executorch::runtime::Error::Ok) {
        throw Failure(
            kBadInput,
            "input " + std::to_string(i) + " of method '" + method_.name() + "', " +
                call_.inputs[i] + ", is not what it takes: " + describe(error));
      }
    }
  }

 private:
  void add_input(Session& session, const std::string& word, size_t index, size_t length) {
    std::pair<LoadedMethod*, size_t> source{nullptr, 0};
    std::unique_ptr<Numbers> numbers;
    files_at_.push_back(files_.values.size());
    if (word == "tokens" || word == "position" || word == "positions") {
      const auto meta = method_.method().method_meta().input_tensor_meta(index);
      check(meta.error(), "asking for input " + std::to_string(index) + " of " + method_.name());
      const ScalarType type = meta->scalar_type();
      if (type != ScalarType::Int && type != ScalarType::Long) {
        throw Failure(
            kBadInput,
            "input " + std::to_string(index) + " of method '" + method_.name() + "' is " +
                name_of(type) + ", which " + word + " are not");
      }
      numbers = std::make_unique<Numbers>(type, word == "tokens");
      numbers->resize(word == "position" ? 1 : length);
      (word == "tokens" ? tokens_ : positions_) = numbers.get();
    } else if (word.rfind("output:", 0) == 0) {
      const auto colon = word.rfind(':');
      source.first = &session.method(word.substr(7, colon - 7));
      source.second = static_cast<size_t>(std::strtoul(word.c_str() + colon + 1, nullptr, 10));
      if (source.second >= source.first->method().outputs_size()) {
        throw Failure(kBadInput, "--input " + word + ": there is no such output");
      }
    } else {
      add_file(parse_input(word));
    }
    sources_.push_back(source);
    numbers_.push_back(std::move(numbers));
  }

  void add_file(Value value) {
    files_.held.push_back(std::move(value));
    auto* tensor = std::get_if<HostTensor>(&files_.held.back());
    if (tensor == nullptr) {
      throw Failure(kBadInput, "what is given to a method of a generation must be a tensor");
    }
    // The bytes stay where they are when the vector of values moves them.
    files_.tensors.push_back(make_tensor_ptr(
        tensor->sizes, tensor->bytes.data(), tensor->dim_order, tensor->strides(), tensor->type));
    files_.values.emplace_back(files_.tensors.back());
  }

  void set_tokens(const std::vector<int64_t>& ids) {
    for (size_t i = 0; tokens_ != nullptr && i < ids.size(); ++i) {
      tokens_->set(i, ids[i]);
    }
  }

  void set_position(int64_t first) {
    for (size_t i = 0; positions_ != nullptr && i < positions_->size(); ++i) {
      positions_->set(i, first + static_cast<int64_t>(i));
    }
  }

  const CallOptions& call_;
  LoadedMethod& method_;
  std::vector<std::pair<LoadedMethod*, size_t>> sources_; // null: not an output
  std::vector<std::unique_ptr<Numbers>> numbers_; // null: neither tokens nor positions
  std::vector<size_t> files_at_;
  Inputs files_;
  Numbers* tokens_ = nullptr;
  Numbers* positions_ = nullptr;
};

/// The logits of a call: rows of `vocabulary` numbers.
struct Logits {
  Logits(const Step& step, size_t output) {
    const auto& value = step.method().method().get_output(output);
    if (!value.isTensor() || value.toTensor().dim() < 2) {
      throw Failure(
          kBadInput,
          "output " + std::to_string(output) + " of method '" + step.method().name() +
              "' is not logits");
    }
    const Tensor& found = value.toTensor();
    vocabulary = static_cast<size_t>(found.size(found.dim() - 1));
    rows = vocabulary == 0 ? 0 : static_cast<size_t>(found.numel()) / vocabulary;
    if (rows == 0) {
      throw Failure(kRuntimeFailed, "method '" + step.method().name() + "' gave no logits");
    }
    type = found.scalar_type();
    data = found.const_data_ptr();
  }

  /// A row as floats; those of another type are converted into `buffer`.
  const float* row(size_t index, std::vector<float>& buffer) const {
    if (type == ScalarType::Float) {
      return static_cast<const float*>(data) + index * vocabulary;
    }
    buffer.resize(vocabulary);
    switch (type) {
      case ScalarType::Half:
        convert<executorch::aten::Half>(index, buffer);
        break;
      case ScalarType::BFloat16:
        convert<executorch::aten::BFloat16>(index, buffer);
        break;
      case ScalarType::Double:
        convert<double>(index, buffer);
        break;
      default:
        throw Failure(kBadInput, "logits of the type " + name_of(type) + " are not supported");
    }
    return buffer.data();
  }

  template <typename T>
  void convert(size_t index, std::vector<float>& buffer) const {
    const T* from = static_cast<const T*>(data) + index * vocabulary;
    std::transform(from, from + vocabulary, buffer.begin(), [](T number) {
      return static_cast<float>(number);
    });
  }

  size_t vocabulary = 0;
  size_t rows = 0;
  ScalarType type = ScalarType::Float;
  const void* data = nullptr;
};

class Loop {
 public:
  Loop(Session& session, const Options& options)
      : session_(session),
        options_(options.generation),
        level_(options.debug_level),
        sampler_(options.generation) {
    for (const CallOptions& call : options.calls) {
      session.method(call.method); // all are loaded before one is executed
    }
    for (const CallOptions& call : options.calls) {
      (call.decode ? decode_ : prompt_).push_back(std::make_unique<Step>(session, call));
    }
    const auto calls = static_cast<size_t>(options_.generations) *
        (prompt_.size() + decode_.size() * static_cast<size_t>(options_.max_new_tokens - 1));
    for (auto* column :
         {&record_.run, &record_.start_ns, &record_.execute_ns, &record_.sampling_ns}) {
      column->reserve(std::min<size_t>(calls, 1 << 20));
    }
  }

  GenerationRecord run() {
    for (int64_t number = 0; number < options_.generations && interrupted == 0; ++number) {
      record_.tokens.emplace_back();
      record_.logits.clear();
      record_.logits_positions.clear();
      record_.stopped_by.push_back(generate(number));
    }
    if (session_.meter() != nullptr) {
      session_.meter()->end_phase("later executions", decode_.back()->method().name());
    }
    return std::move(record_);
  }

 private:
  /// Does one generation; why it ended.
  const char* generate(int64_t number) {
    std::vector<int64_t> context = options_.context;
    std::vector<int64_t>& chosen = record_.tokens.back();
    index_ = 0;
    begin_ = now_ns();
    for (const auto& step : prompt_) {
      execute(*step, number);
      keep_all(*step, context);
      if (interrupted != 0) {
        return "interrupted";
      }
    }
    const Step* last = prompt_.back().get();
    while (true) {
      const int64_t before = now_ns();
      const int64_t token = choose(*last, context, chosen.size());
      record_.sampling_ns.back() = now_ns() - before;
      chosen.push_back(token);
      context.push_back(token);
      if (const char* reason = reason_to_stop(token, chosen.size(), context.size())) {
        return reason;
      }
      for (const auto& step : decode_) {
        step->take(context);
        execute(*step, number);
      }
      last = decode_.back().get();
      keep_all(*last, context);
    }
  }

  const char* reason_to_stop(int64_t token, size_t chosen, size_t length) const {
    if (interrupted != 0) {
      return "interrupted";
    }
    const auto& ends = options_.end_tokens;
    if (options_.forced.empty() && std::find(ends.begin(), ends.end(), token) != ends.end()) {
      return "end token";
    }
    if (static_cast<int64_t>(chosen) >= options_.max_new_tokens) {
      return "length";
    }
    const auto position = static_cast<int64_t>(length) - 1;
    return options_.last_position && position > *options_.last_position ? "context" : nullptr;
  }

  void execute(Step& step, int64_t number) {
    if (options_.values_at && session_.tracer() != nullptr) {
      const bool logs = index_ >= options_.values_at->first && index_ <= options_.values_at->second;
      session_.tracer()->set_event_tracer_debug_level(
          logs ? level_ : EventTracerDebugLogLevel::kNoLogging);
    }
    if (session_.meter() != nullptr) {
      session_.meter()->begin_method(step.method().name());
    }
    step.set_inputs();
    const int64_t start = now_ns();
    const auto error = step.method().method().execute();
    const int64_t end = now_ns();
    if (error != executorch::runtime::Error::Ok) {
      check(error, "executing method '" + step.method().name() + "'");
    }
    record_.run.push_back(number);
    record_.start_ns.push_back(start - begin_);
    record_.execute_ns.push_back(end - start);
    record_.sampling_ns.push_back(0);
    ++index_;
    end_first(step.method().name());
  }

  /// Ends the memory meter's phase of the first execution of a method.
  void end_first(const std::string& method) {
    if (session_.meter() != nullptr &&
        std::find(executed_.begin(), executed_.end(), method) == executed_.end()) {
      session_.meter()->end_phase("first execution", method);
      executed_.push_back(method);
    }
  }

  int64_t choose(const Step& step, const std::vector<int64_t>& context, size_t number) {
    const Logits logits(step, options_.logits_output);
    const size_t index = std::min(std::max<size_t>(step.count(context), 1), logits.rows) - 1;
    const float* row = logits.row(index, buffer_);
    if (options_.kept == GenerationOptions::Kept::kGenerated) {
      keep(row, logits.vocabulary, static_cast<int64_t>(context.size()) - 1);
    }
    return options_.forced.empty() ? sampler_.choose(row, logits.vocabulary, number)
                                   : options_.forced[number];
  }

  /// Keeps all rows of the tokens of a call that gives logits, if that was asked for.
  void keep_all(const Step& step, const std::vector<int64_t>& context) {
    const std::string& name = step.method().name();
    if (options_.kept != GenerationOptions::Kept::kAll ||
        (name != prompt_.back()->method().name() && name != decode_.back()->method().name())) {
      return;
    }
    const Logits logits(step, options_.logits_output);
    const size_t count = step.count(context);
    const size_t kept = logits.rows >= count ? count : 1;
    const size_t first_row = logits.rows >= count ? 0 : logits.rows - 1;
    const int64_t first =
        step.position(context) + static_cast<int64_t>(count) - static_cast<int64_t>(kept);
    for (size_t i = 0; i < kept; ++i) {
      const int64_t position = first + static_cast<int64_t>(i);
      // A method without a cache gives the rows before again.
      if (record_.logits_positions.empty() || position > record_.logits_positions.back()) {
        keep(logits.row(first_row + i, buffer_), logits.vocabulary, position);
      }
    }
  }

  void keep(const float* row, size_t vocabulary, int64_t position) {
    record_.logits.insert(record_.logits.end(), row, row + vocabulary);
    record_.logits_positions.push_back(position);
  }

  Session& session_;
  const GenerationOptions& options_;
  const EventTracerDebugLogLevel level_;
  Sampler sampler_;
  std::vector<std::unique_ptr<Step>> prompt_;
  std::vector<std::unique_ptr<Step>> decode_;
  GenerationRecord record_;
  std::vector<std::string> executed_;
  std::vector<float> buffer_;
  int64_t begin_ = 0;
  int64_t index_ = 0; // of the call in its generation
};

} // namespace

Record generate(Session& session, const Options& options) {
  Record record;
  const int64_t start = now_ns();
  if (session.tracer() != nullptr) {
    session.tracer()->set_input_index(-1);
  }
  Loop loop(session, options);
  record.load_ns = session.load_ns() + now_ns() - start;
  set_activity("generating");
  catch_interrupt();
  record.generation = loop.run();
  return record;
}

} // namespace etscope
