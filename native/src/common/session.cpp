#include "common/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <utility>

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/data_loader/file_data_loader.h>

#include "common/failure.h"
#include "common/generate.h"
#include "common/platform.h"

namespace etscope {

using executorch::extension::BufferDataLoader;
using executorch::extension::FileDataLoader;
using executorch::extension::Method;
using executorch::extension::Module;
using executorch::runtime::DataLoader;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::MemoryAllocator;
using executorch::runtime::Program;
using executorch::runtime::Tag;

namespace {

constexpr size_t kHeaderSize = 8;
constexpr size_t kSlack = 64; // kernels' vector units read over the end

std::string header_of(const std::string& path) {
  check_readable(path);
  std::ifstream file(path, std::ios::binary);
  std::string header(kHeaderSize, '\0');
  file.read(header.data(), kHeaderSize);
  return header;
}

void check_program(const void* header, size_t size, const std::string& path) {
  if (size < kHeaderSize || std::memcmp(static_cast<const char*>(header) + 4, "ET", 2) != 0) {
    throw Failure(kBadInput, path + ": not an ExecuTorch program (.pte or .bpte)");
  }
}

const char* kind_of(Tag tag) {
  switch (tag) {
    case Tag::None:
      return "none";
    case Tag::Int:
      return "an int";
    case Tag::Double:
      return "a double";
    case Tag::Bool:
      return "a bool";
    case Tag::String:
      return "a string";
    case Tag::Tensor:
      return "a tensor";
    default:
      return "a list";
  }
}

Tag tag_of(const Value& value) {
  constexpr Tag kTags[] = {Tag::None, Tag::Int, Tag::Double, Tag::Bool, Tag::String, Tag::Tensor};
  return kTags[value.index()];
}

std::unique_ptr<DataLoader> file_loader(const std::string& path) {
  auto loader = FileDataLoader::from(path.c_str());
  check(loader.error(), "opening " + path);
  return std::make_unique<FileDataLoader>(std::move(*loader));
}

template <typename T>
std::vector<T> vector_of(executorch::runtime::Span<const T> span) {
  return {span.begin(), span.end()};
}

} // namespace

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Arenas::Arenas(const std::vector<size_t>& sizes, AlignedBytes* shared) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (shared != nullptr && i + 1 == sizes.size()) {
      memory.emplace_back(shared->data(), sizes[i]);
      continue;
    }
    buffers.emplace_back(sizes[i] + kSlack);
    std::memset(buffers.back().data(), 0, sizes[i] + kSlack); // every run begins alike
    memory.emplace_back(buffers.back().data(), sizes[i]);
  }
  allocator.emplace(executorch::runtime::Span<Region>(memory.data(), memory.size()));
}

LoadedMethod::LoadedMethod(std::string name, Method& method)
    : name_(std::move(name)), method_(method) {
  give_outputs_memory();
}

size_t LoadedMethod::input_count() const {
  return method_.inputs_size();
}

std::string LoadedMethod::input_name(size_t index) const {
  return "input " + std::to_string(index) + " of method '" + name_ + "'";
}

// Outputs that the program's memory plan leaves out are written to memory of ours.
void LoadedMethod::give_outputs_memory() {
  const auto meta = method_.method_meta();
  for (size_t i = 0; i < meta.num_outputs(); ++i) {
    const auto tag = meta.output_tag(i);
    if (!tag.ok() || *tag != Tag::Tensor) { // asked for more, the runtime would complain
      continue;
    }
    const auto tensor = meta.output_tensor_meta(i);
    if (tensor.ok() && !tensor->is_memory_planned()) {
      output_memory_.emplace_back(tensor->nbytes());
      const auto& memory = output_memory_.back();
      check(
          method_.set_output_data_ptr(memory.data(), tensor->nbytes(), i),
          "giving memory to output " + std::to_string(i) + " of method '" + name_ + "'");
    }
  }
}

Value LoadedMethod::fit(const Value& value, size_t index) const {
  const auto meta = method_.method_meta();
  const auto tag = meta.input_tag(index);
  check(tag.error(), "asking for " + input_name(index));
  if (std::holds_alternative<Nothing>(value)) {
    return value;
  }
  if (*tag != tag_of(value)) {
    throw Failure(
        kBadInput, input_name(index) + " is " + kind_of(*tag) + ", not " + kind_of(tag_of(value)));
  }
  if (*tag != Tag::Tensor) {
    return value;
  }
  const auto& given = std::get<HostTensor>(value);
  const auto taken = meta.input_tensor_meta(index);
  check(taken.error(), "asking for " + input_name(index));
  const auto sizes = vector_of(taken->sizes());
  const bool fits = given.type == taken->scalar_type() && given.sizes.size() == sizes.size() &&
      std::equal(sizes.begin(), sizes.end(), given.sizes.begin(), std::greater_equal<>());
  if (!fits) {
    throw Failure(
        kBadInput,
        input_name(index) + " is " + describe_tensor(taken->scalar_type(), sizes) + ", not " +
            given.describe());
  }
  return given.in_order(vector_of(taken->dim_order()));
}

Inputs LoadedMethod::make_inputs(const std::vector<Value>& values) const {
  if (values.size() != input_count()) {
    throw Failure(
        kBadInput,
        "method '" + name_ + "' takes " + std::to_string(input_count()) + " inputs, not " +
            std::to_string(values.size()));
  }
  Inputs made;
  for (size_t i = 0; i < values.size(); ++i) {
    made.held.push_back(fit(values[i], i));
  }
  for (Value& value : made.held) {
    if (auto* tensor = std::get_if<HostTensor>(&value)) {
      made.tensors.push_back(
          executorch::extension::make_tensor_ptr(
              tensor->sizes,
              tensor->bytes.data(),
              tensor->dim_order,
              tensor->strides(),
              tensor->type));
      made.values.emplace_back(made.tensors.back());
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      made.values.emplace_back(*integer);
    } else if (const auto* real = std::get_if<double>(&value)) {
      made.values.emplace_back(*real);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      made.values.emplace_back(*flag);
    } else {
      made.values.emplace_back();
    }
  }
  return made;
}

void LoadedMethod::feed(const Inputs& inputs) {
  for (size_t i = 0; i < inputs.values.size(); ++i) {
    const Error error = method_.set_input(inputs.values[i], i);
    if (error != Error::Ok) {
      throw Failure(kBadInput, input_name(i) + " is not what the method takes: " + describe(error));
    }
  }
}

void LoadedMethod::set_inputs(const std::vector<Value>& values) {
  Inputs made = make_inputs(values);
  feed(made);
  inputs_ = std::move(made);
}

std::vector<Value> LoadedMethod::generate_inputs(uint64_t seed) const {
  const auto meta = method_.method_meta();
  std::vector<Value> values;
  for (size_t i = 0; i < meta.num_inputs(); ++i) {
    const auto tag = meta.input_tag(i);
    if (tag.ok() && *tag == Tag::Tensor) {
      const auto tensor = meta.input_tensor_meta(i);
      check(tensor.error(), "asking for " + input_name(i));
      values.emplace_back(
          generate_tensor(tensor->scalar_type(), vector_of(tensor->sizes()), seed, i));
      continue;
    }
    // The method holds the value that it was exported with, and takes no other.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    values.push_back(copy_of(method_.get_input(i), input_name(i)));
#pragma GCC diagnostic pop
  }
  return values;
}

int64_t LoadedMethod::execute() {
  // Planned memory of inputs is used for other values, too, so they are set each time.
  for (size_t i = 0; i < inputs_.values.size(); ++i) {
    check(method_.set_input(inputs_.values[i], i), "setting " + input_name(i));
  }
  const int64_t start = now_ns();
  const Error error = method_.execute();
  const int64_t end = now_ns();
  if (error != Error::Ok) {
    check(error, "executing method '" + name_ + "'");
  }
  return end - start;
}

std::vector<Value> LoadedMethod::outputs() const {
  std::vector<Value> values;
  for (size_t i = 0; i < method_.outputs_size(); ++i) {
    values.push_back(copy_of(
        method_.get_output(i), "output " + std::to_string(i) + " of method '" + name_ + "'"));
  }
  return values;
}

Session::Session(const Options& options) : file_(0) {
  for (const std::string& library : options.libraries) {
    load_library(library);
  }
  if (options.threads) {
    set_threads(*options.threads);
  }
  if (options.memory) {
    meter_.emplace();
  }
  open(options);
  set_activity("loading " + options.program);
  const int64_t start = now_ns();
  const Error error = module_->load(Program::Verification::InternalConsistency);
  load_ns_ = now_ns() - start;
  if (error == Error::InvalidProgram) {
    throw Failure(kBadInput, options.program + ": not a valid program: " + describe(error));
  }
  check(error, "loading " + options.program);
  if (meter_) {
    meter_->end_phase("program", "");
  }
}

void Session::open(const Options& options) {
  std::unique_ptr<Tracer> tracer;
  std::unique_ptr<MemoryAllocator> method_allocator;
  std::unique_ptr<MemoryAllocator> temporary_allocator;
  if (!options.etdump_out.empty()) {
    tracer = std::make_unique<Tracer>();
    tracer->set_event_tracer_profiling_level(options.profiling_level);
    tracer->set_event_tracer_debug_level(options.debug_level);
    if (options.allocations) {
      using Arena = Tracer::Arena;
      tracer->track_allocations();
      method_allocator = std::make_unique<TrackingAllocator>(*tracer, Arena::kMethod);
      temporary_allocator = std::make_unique<TrackingAllocator>(*tracer, Arena::kTemporary);
    }
  }
  tracer_ = tracer.get();
  std::unique_ptr<executorch::runtime::EventTracer> any_tracer = std::move(tracer);
  std::unique_ptr<DataLoader> program = program_loader(options.program);
  std::unique_ptr<DataLoader> data;
  if (!options.data.empty()) {
    check_readable(options.data);
    data = file_loader(options.data);
  }
  if (meter_) {
    using Source = MemoryMeter::Source;
    method_allocator = meter_->allocator(Owner::kMethod);
    temporary_allocator = meter_->allocator(Owner::kTemporary);
    any_tracer = meter_->tracer();
    meter_->add(Owner::kProgram, static_cast<int64_t>(file_.size()));
    program = meter_->watch(std::move(program), bundle_ ? Source::kMemory : Source::kProgramFile);
    data = data == nullptr ? nullptr : meter_->watch(std::move(data), Source::kDataFile);
  }
  if (options.pools.method) {
    auto method = std::make_unique<Pool>("method", *options.pools.method);
    auto temporary = std::make_unique<Pool>("temporary", *options.pools.temporary);
    pools_ = {method.get(), temporary.get()};
    planned_pool_ = options.pools.planned ? method.get() : nullptr;
    method_allocator = std::move(method);
    temporary_allocator = std::move(temporary);
  }
  module_ = std::make_unique<Module>(
      std::move(program),
      std::move(method_allocator),
      std::move(temporary_allocator),
      std::move(any_tracer),
      std::move(data));
}

std::unique_ptr<DataLoader> Session::program_loader(const std::string& path) {
  const std::string header = header_of(path);
  const auto* bytes = reinterpret_cast<const uint8_t*>(header.data());
  if (!Bundle::is_bundle(bytes, header.size())) {
    check_program(header.data(), header.size(), path);
    return file_loader(path);
  }
  file_ = read_file(path);
  bundle_.emplace(file_.data(), file_.size(), path);
  const Span span = bundle_->program();
  const uint8_t* program = file_.data() + span.offset;
  check_program(program, span.size, path + ": its program");
  if (span.offset % 16 != 0) { // not by upstream's writer, which aligns it for the runtime
    program_copy_.emplace(span.size);
    std::memcpy(program_copy_->data(), program, span.size);
    program = program_copy_->data();
  }
  return std::make_unique<BufferDataLoader>(program, span.size);
}

std::string Session::resolve(const std::string& name) const {
  const auto program = module_->program();
  std::string list;
  for (size_t i = 0; i < program->num_methods(); ++i) {
    const auto found = program->get_method_name(i);
    check(found.error(), "asking for the program's methods");
    if (name == *found || (name.empty() && std::strcmp(*found, "forward") == 0)) {
      return *found;
    }
    list += (list.empty() ? "" : ", ") + std::string(*found);
  }
  if (name.empty() && program->num_methods() > 0) {
    return *program->get_method_name(0);
  }
  throw Failure(kBadInput, "the program has no method '" + name + "'; it has " + list);
}

std::vector<size_t> Session::planned_sizes(const std::string& name) const {
  const auto meta = module_->method_meta(resolve(name));
  check(meta.error(), "asking for the memory of method '" + name + "'");
  std::vector<size_t> sizes;
  for (size_t i = 0; i < meta->num_memory_planned_buffers(); ++i) {
    const auto size = meta->memory_planned_buffer_size(i);
    check(size.error(), "asking for the memory of method '" + name + "'");
    sizes.push_back(static_cast<size_t>(*size));
  }
  return sizes;
}

/// Whether the program was planned with `MemoryPlanningPass(share_mutable_buffers=True)`: the file
/// does not say so, but that gives every method a second buffer of one size, at the same offsets.
bool Session::shares_state(const std::string& name) const {
  const auto sizes = planned_sizes(name);
  if (sizes.size() != 2 || sizes[1] == 0) {
    return false;
  }
  const auto program = module_->program();
  for (size_t i = 0; i < program->num_methods(); ++i) {
    const std::string other = *program->get_method_name(i);
    if (other != name) {
      const auto others = planned_sizes(other);
      if (others.size() == 2 && others[1] == sizes[1]) {
        return true;
      }
    }
  }
  return false;
}

void Session::unload(const std::string& name) {
  const auto same = [&name](const auto& method) { return method->name() == name; };
  methods_.erase(std::remove_if(methods_.begin(), methods_.end(), same), methods_.end());
  if (module_->is_method_loaded(name)) {
    count_planned(own_planned_size(name), -1);
  }
  module_->unload_method(name);
  arenas_.erase(name);
}

void Session::load_sharing(const std::vector<CallOptions>& calls) {
  for (const CallOptions& call : calls) {
    if (shares_state(resolve(call.method))) {
      method(call.method);
    }
  }
}

LoadedMethod& Session::fresh_method(
    const std::string& name, executorch::runtime::HierarchicalAllocator* planned) {
  const std::string found = resolve(name);
  if (planned != nullptr || !shares_state(found)) {
    unload(found);
    return load(found, planned);
  }
  std::vector<std::string> sharing;
  for (const auto& [other, arenas] : arenas_) {
    sharing.push_back(other);
  }
  for (const std::string& other : sharing) {
    unload(other);
  }
  if (shared_) {
    count_planned(planned_sizes(found)[1], -1);
    shared_.reset();
  }
  for (const std::string& other : sharing) {
    if (other != found) {
      load(other, nullptr);
    }
  }
  return load(found, nullptr);
}

LoadedMethod& Session::method(const std::string& name) {
  const std::string found = resolve(name);
  for (const auto& method : methods_) {
    if (method->name() == found) {
      return *method;
    }
  }
  return load(found, nullptr);
}

LoadedMethod& Session::load(
    const std::string& name, executorch::runtime::HierarchicalAllocator* planned) {
  set_activity("loading method '" + name + "'");
  if (planned == nullptr && shares_state(name)) {
    const auto sizes = planned_sizes(name);
    if (!shared_) {
      shared_.emplace(sizes[1] + kSlack);
      count_planned(sizes[1], 1);
      std::memset(shared_->data(), 0, sizes[1] + kSlack);
    }
    planned = &*arenas_.try_emplace(name, sizes, &*shared_).first->second.allocator;
  }
  if (meter_) {
    meter_->begin_method(name);
    count_planned(
        own_planned_size(name),
        1); // before delegates are made, whose own memory is what is not counted
  }
  if (planned_pool_ != nullptr) {
    planned = planned_in_pool(name);
  }
  check(module_->load_method(name, planned), "loading method '" + name + "'");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const auto method = module_->method(name);
#pragma GCC diagnostic pop
  check(method.error(), "loading method '" + name + "'");
  if (planned_pool_ != nullptr && (*method)->inputs_size() > 0 &&
      planned_pool_->allocateList<EValue>((*method)->inputs_size()) == nullptr) {
    throw Failure(kRuntimeFailed, "there is no memory for the inputs of method '" + name + "'");
  }
  methods_.push_back(std::make_unique<LoadedMethod>(name, **method));
  if (meter_) {
    meter_->end_phase("load", name);
  }
  return *methods_.back();
}

executorch::runtime::HierarchicalAllocator* Session::planned_in_pool(const std::string& name) {
  constexpr size_t kPlannedAlignment = 16; // as the runners in ExecuTorch's examples have it
  for (const size_t size : planned_sizes(name)) {
    auto* memory = static_cast<uint8_t*>(
        size == 0 ? nullptr : planned_pool_->allocate(size, kPlannedAlignment));
    if (size != 0 && memory == nullptr) {
      throw Failure(kRuntimeFailed, "there is no memory for the plan of method '" + name + "'");
    }
    if (size != 0) {
      std::memset(memory, 0, size); // every run begins alike
    }
    regions_in_pool_.emplace_back(memory, size);
  }
  return &planned_in_pool_.emplace(
      executorch::runtime::Span<Region>(regions_in_pool_.data(), regions_in_pool_.size()));
}

size_t Session::own_planned_size(const std::string& name) const {
  std::vector<size_t> sizes = planned_sizes(name);
  if (shares_state(name)) {
    sizes.pop_back();
  }
  return std::accumulate(sizes.begin(), sizes.end(), size_t{0});
}

void Session::count_planned(size_t size, int64_t sign) {
  if (meter_) {
    meter_->add(Owner::kPlanned, sign * static_cast<int64_t>(size));
  }
}

} // namespace etscope
