#include "runner/result.h"

#include <filesystem>
#include <optional>

#include "common/json.h"
#include "common/output_file.h"
#include "common/platform.h"

namespace etscope {

namespace fs = std::filesystem;

namespace {

constexpr const char* kNull = "null";

/// The name of a file as result.json tells it: alone when it is beside it.
std::string name_from(const fs::path& file, const std::string& result_out) {
  const fs::path result = result_out.empty() ? fs::path("result.json") : fs::path(result_out);
  const auto folder = [](const fs::path& path) {
    return fs::weakly_canonical(fs::absolute(path)).parent_path();
  };
  return folder(file) == folder(result) ? file.filename().string() : fs::absolute(file).string();
}

std::string describe_tensor_file(
    const HostTensor& tensor, const std::string& name, const Options& options) {
  json::Object object;
  object.add("kind", json::text("tensor"))
      .add("dtype", json::text(name_of(tensor.type)))
      .add("sizes", json::numbers(tensor.sizes))
      .add("dim_order", json::numbers(tensor.dim_order));
  if (!options.outputs_dir.empty()) {
    const fs::path file = fs::path(options.outputs_dir) / name;
    write_file(file.string(), tensor.bytes.data(), tensor.bytes.size());
    object.add("file", json::text(name_from(file, options.result_out)));
  }
  return object.str();
}

std::string scalar(const char* kind, const std::string& value) {
  return json::Object().add("kind", json::text(kind)).add("value", value).str();
}

std::string describe_value(const Value& value, const std::string& name, const Options& options) {
  if (const auto* tensor = std::get_if<HostTensor>(&value)) {
    return describe_tensor_file(*tensor, name, options);
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return scalar("int", json::number(*integer));
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return scalar("double", json::number(*real));
  }
  if (const auto* flag = std::get_if<bool>(&value)) {
    return scalar("bool", *flag ? "true" : "false");
  }
  if (const auto* string = std::get_if<std::string>(&value)) {
    return scalar("string", json::text(*string));
  }
  return json::Object().add("kind", json::text("none")).str();
}

std::string describe_call(const CallRecord& call, size_t index, const Options& options) {
  std::vector<std::string> outputs;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const std::string name = "output-" + std::to_string(index) + "-" + std::to_string(i) + ".raw";
    outputs.push_back(describe_value(call.outputs[i], name, options));
  }
  return json::Object()
      .add("method", json::text(call.method))
      .add("load_ns", json::number(call.load_ns))
      .add("warmup_ns", json::numbers(call.warmup_ns))
      .add("samples_ns", json::numbers(call.samples_ns))
      .add("outputs", json::array(outputs))
      .str();
}

std::string describe_bytes(const std::optional<int64_t>& bytes) {
  return bytes ? json::number(*bytes) : kNull;
}

std::string describe_phase(const Phase& phase) {
  json::Object owners;
  for (size_t i = 0; i < kOwners; ++i) {
    owners.add(name_of(static_cast<Owner>(i)), json::number(phase.tally[i]));
  }
  json::Object object;
  object.add("phase", json::text(phase.name))
      .add("method", phase.method.empty() ? kNull : json::text(phase.method))
      .add("counted_bytes", owners.str())
      .add("peak_rss_bytes", describe_bytes(phase.peak));
  if (phase.heap) {
    object.add("malloc_used_bytes", json::number(phase.heap->used))
        .add("malloc_held_bytes", json::number(phase.heap->held));
  }
  if (phase.mappings) {
    object.add("rss_bytes", json::number(phase.mappings->resident))
        .add("rss_of_files_bytes", json::number(phase.mappings->files))
        .add("rss_of_stacks_bytes", json::number(phase.mappings->stacks))
        .add("rss_anonymous_bytes", json::number(phase.mappings->anonymous))
        .add("mapped_anonymous_bytes", json::number(phase.mappings->reserved));
  }
  return object.str();
}

std::string describe_memory(const MemoryMeter& meter) {
  std::vector<std::string> phases;
  for (const Phase& phase : meter.phases()) {
    phases.push_back(describe_phase(phase));
  }
  std::vector<std::string> inits;
  for (const DelegateInit& init : meter.inits()) {
    inits.push_back(
        json::Object()
            .add("method", json::text(init.method))
            .add("segment", json::number(static_cast<int64_t>(init.segment)))
            .add("backend", json::text(init.backend))
            .add("growth_bytes", describe_bytes(init.growth))
            .add("peak_rss_bytes", describe_bytes(init.peak))
            .str());
  }
  std::vector<std::string> instructions;
  for (const auto& [key, found] : meter.instructions()) {
    const auto& [method, chain, instruction] = key;
    instructions.push_back(
        json::Object()
            .add("method", json::text(method))
            .add("chain", json::number(chain))
            .add("instruction", json::number(instruction))
            .add("executions", json::number(found.executions))
            .add("first_growth_bytes", describe_bytes(found.first))
            .add("later_growth_bytes", describe_bytes(found.later))
            .add("temporary_bytes", json::number(found.temporary))
            .add("peak_rss_bytes", describe_bytes(found.peak))
            .str());
  }
  return json::Object()
      .add("phases", json::array(phases))
      .add("delegates", json::array(inits))
      .add("instructions", json::array(instructions))
      .str();
}

std::string describe_verdict(const Verdict& verdict) {
  json::Object object;
  object.add("method", json::text(verdict.method))
      .add("case", json::number(static_cast<int64_t>(verdict.index)))
      .add("passed", verdict.passed ? "true" : "false")
      .add("max_abs_error", verdict.max_abs_error ? json::number(*verdict.max_abs_error) : kNull);
  if (!verdict.passed) {
    object.add("reason", json::text(verdict.reason));
  }
  return object.str();
}

std::string describe_generation(const GenerationRecord& record, const Options& options) {
  std::vector<std::string> tokens;
  for (const auto& ids : record.tokens) {
    tokens.push_back(json::numbers(ids));
  }
  std::vector<std::string> reasons;
  for (const std::string& reason : record.stopped_by) {
    reasons.push_back(json::text(reason));
  }
  json::Object object;
  object.add("tokens", json::array(tokens))
      .add("stopped_by", json::array(reasons))
      .add("run", json::numbers(record.run))
      .add("start_ns", json::numbers(record.start_ns))
      .add("execute_ns", json::numbers(record.execute_ns))
      .add("sampling_ns", json::numbers(record.sampling_ns));
  if (!record.logits_positions.empty()) {
    const size_t rows = record.logits_positions.size();
    HostTensor logits;
    logits.sizes = {
        static_cast<SizesType>(rows), static_cast<SizesType>(record.logits.size() / rows)};
    logits.dim_order = default_dim_order(2);
    const auto* bytes = reinterpret_cast<const uint8_t*>(record.logits.data());
    logits.bytes.assign(bytes, bytes + record.logits.size() * sizeof(float));
    object.add("logits", describe_tensor_file(logits, "output-0-0.raw", options))
        .add("logits_positions", json::numbers(record.logits_positions));
  }
  return object.str();
}

} // namespace

std::string write_outputs(const Record& record, const Options& options, Session& session) {
  const MemoryMeter* meter = session.meter();
  std::vector<std::string> calls;
  for (size_t i = 0; i < record.calls.size(); ++i) {
    calls.push_back(describe_call(record.calls[i], i, options));
  }
  const auto threads = thread_count();
  const std::string version = ETSCOPE_EXECUTORCH_VERSION;
  json::Object object;
  object.add("runner", json::text("native"))
      .add("executorch", version.empty() ? kNull : json::text(version))
      .add("threads", threads ? json::number(static_cast<int64_t>(*threads)) : kNull)
      .add("rss_before_bytes", describe_bytes(record.resident_before))
      .add("peak_rss_bytes", describe_bytes(meter == nullptr ? memory_now().peak : meter->peak()))
      .add("load_ns", json::number(record.load_ns))
      .add("calls", json::array(calls));
  if (record.generation) {
    object.add("generation", describe_generation(*record.generation, options));
  }
  if (meter != nullptr) {
    object.add("memory", describe_memory(*meter));
  }
  if (!session.pools().empty()) {
    std::vector<std::string> pools;
    for (const Pool* pool : session.pools()) {
      pools.push_back(
          json::Object()
              .add("pool", json::text(pool->name()))
              .add("size_bytes", json::number(static_cast<int64_t>(pool->size())))
              .add("peak_bytes", json::number(static_cast<int64_t>(pool->peak())))
              .add("alignment", json::number(static_cast<int64_t>(pool->alignment())))
              .str());
    }
    object.add("pools", json::array(pools))
        .add("pool_failure", pool_failure().empty() ? kNull : json::text(pool_failure()));
  }
  if (options.verify) {
    std::vector<std::string> verdicts;
    for (const Verdict& verdict : record.verification) {
      verdicts.push_back(describe_verdict(verdict));
    }
    object.add("verification", json::array(verdicts));
  }
  return object.str() + "\n";
}

} // namespace etscope
