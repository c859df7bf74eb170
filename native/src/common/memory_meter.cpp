#include "common/memory_meter.h"

#include <algorithm>

#include "common/platform.h"

namespace etscope {

using executorch::runtime::AllocatorID;
using executorch::runtime::ArrayRef;
using executorch::runtime::ChainID;
using executorch::runtime::DataLoader;
using executorch::runtime::DebugHandle;
using executorch::runtime::DelegateDebugIntId;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::EventTracer;
using executorch::runtime::EventTracerEntry;
using executorch::runtime::EventTracerFilterBase;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::LoggedEValueType;
using executorch::runtime::Result;
using Source = MemoryMeter::Source;
using Tensor = executorch::aten::Tensor;

namespace {

/// A piece that a loader has read, until it is freed.
struct Piece {
  MemoryMeter& meter;
  Owner owner;
  int64_t size;
  FreeableBuffer buffer;
};

void free_piece(void* context, void*, size_t) {
  const std::unique_ptr<Piece> piece(static_cast<Piece*>(context));
  piece->meter.add(piece->owner, -piece->size);
}

class MeteredLoader final : public DataLoader {
 public:
  MeteredLoader(MemoryMeter& meter, std::unique_ptr<DataLoader> loader, Source source)
      : meter_(meter), loader_(std::move(loader)), source_(source) {}

  Result<FreeableBuffer> load(
      size_t offset, size_t size, const SegmentInfo& segment) const override {
    if (source_ != Source::kDataFile && segment.segment_type == SegmentInfo::Type::Backend) {
      meter_.begin_init(segment.segment_index, segment.descriptor);
    }
    auto buffer = loader_->load(offset, size, segment);
    if (source_ == Source::kMemory || !buffer.ok() || buffer->data() == nullptr) {
      return buffer;
    }
    const Owner owner = owner_of(segment);
    const auto bytes = static_cast<int64_t>(size);
    meter_.add(owner, bytes);
    const void* data = buffer->data();
    auto* piece = new Piece{meter_, owner, bytes, std::move(*buffer)};
    return FreeableBuffer(data, size, free_piece, piece);
  }

  Error load_into(
      size_t offset, size_t size, const SegmentInfo& segment, void* buffer) const override {
    return loader_->load_into(offset, size, segment, buffer);
  }

  Result<size_t> size() const override {
    return loader_->size();
  }

 private:
  Owner owner_of(const SegmentInfo& segment) const {
    if (source_ == Source::kDataFile) {
      return Owner::kExternal;
    }
    switch (segment.segment_type) {
      case SegmentInfo::Type::Program:
        return Owner::kProgram;
      case SegmentInfo::Type::Backend:
        return Owner::kDelegate;
      default:
        // Constants of kernels are read with the program; others when a delegate asks by name.
        return meter_.phases().size() < 2 ? Owner::kConstants : Owner::kNamed;
    }
  }

  MemoryMeter& meter_;
  const std::unique_ptr<DataLoader> loader_;
  const Source source_;
};

class MeteredAllocator final : public executorch::extension::MallocMemoryAllocator {
 public:
  MeteredAllocator(MemoryMeter& meter, Owner owner) : meter_(meter), owner_(owner) {}

  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override {
    void* memory = MallocMemoryAllocator::allocate(size, alignment);
    if (memory != nullptr) {
      held_ += static_cast<int64_t>(size);
      meter_.add(owner_, static_cast<int64_t>(size));
    }
    return memory;
  }

  void reset() override {
    MallocMemoryAllocator::reset();
    meter_.add(owner_, -held_);
    held_ = 0;
  }

 private:
  MemoryMeter& meter_;
  const Owner owner_;
  int64_t held_ = 0;
};

/// Tells the meter when instructions begin and end, and records nothing.
class MeterTracer final : public EventTracer {
 public:
  explicit MeterTracer(MemoryMeter& meter) : meter_(meter) {}

  EventTracerEntry start_profiling(const char* name, ChainID, DebugHandle) override {
    EventTracerEntry entry{};
    const std::string called = name;
    // What kernels report of themselves is inside of these.
    entry.event_id = called == "OPERATOR_CALL" || called == "DELEGATE_CALL" ? kInstruction : 0;
    if (entry.event_id == kInstruction) {
      meter_.begin_instruction();
    }
    return entry;
  }
  void end_profiling(EventTracerEntry entry) override {
    if (entry.event_id == kInstruction) {
      meter_.end_instruction(current_chain_id(), current_debug_handle());
    }
  }

  void create_event_block(const char*) override {}
  EventTracerEntry start_profiling_delegate(const char*, DelegateDebugIntId) override {
    return {};
  }
  void end_profiling_delegate(EventTracerEntry, const void*, size_t) override {}
  void log_profiling_delegate(
      const char*, DelegateDebugIntId, et_timestamp_t, et_timestamp_t, const void*, size_t)
      override {}
  void track_allocation(AllocatorID, size_t) override {}
  AllocatorID track_allocator(const char*) override {
    return 0;
  }
  Result<bool> log_evalue(const EValue&, LoggedEValueType) override {
    return false;
  }
  Result<bool> log_intermediate_output_delegate(
      const char*, DelegateDebugIntId, const Tensor&) override {
    return false;
  }
  Result<bool> log_intermediate_output_delegate(
      const char*, DelegateDebugIntId, const ArrayRef<Tensor>) override {
    return false;
  }
  Result<bool> log_intermediate_output_delegate(
      const char*, DelegateDebugIntId, const int&) override {
    return false;
  }
  Result<bool> log_intermediate_output_delegate(
      const char*, DelegateDebugIntId, const bool&) override {
    return false;
  }
  Result<bool> log_intermediate_output_delegate(
      const char*, DelegateDebugIntId, const double&) override {
    return false;
  }
  void set_delegation_intermediate_output_filter(EventTracerFilterBase*) override {}

 private:
  static constexpr int64_t kInstruction = 1;
  MemoryMeter& meter_;
};

void raise_to(std::optional<int64_t>& most, std::optional<int64_t> value) {
  if (value && (!most || *most < *value)) {
    most = value;
  }
}

} // namespace

const char* name_of(Owner owner) {
  static constexpr const char* kNames[kOwners] = {
      "program",
      "constants",
      "delegate_data",
      "named_data",
      "external_data",
      "method_allocator",
      "planned",
      "temporary_allocator"};
  return kNames[static_cast<size_t>(owner)];
}

MemoryMeter::MemoryMeter() {
  thread_count(); // starts the pool: its stacks are of the runtime, whatever runs
  peaks_ = reset_peak();
  end_phase("start", "");
}

std::unique_ptr<DataLoader> MemoryMeter::watch(std::unique_ptr<DataLoader> loader, Source source) {
  return std::make_unique<MeteredLoader>(*this, std::move(loader), source);
}

std::unique_ptr<executorch::extension::MallocMemoryAllocator> MemoryMeter::allocator(Owner owner) {
  return std::make_unique<MeteredAllocator>(*this, owner);
}

std::unique_ptr<EventTracer> MemoryMeter::tracer() {
  return std::make_unique<MeterTracer>(*this);
}

void MemoryMeter::add(Owner owner, int64_t bytes) {
  const int64_t now = tally_[static_cast<size_t>(owner)] += bytes;
  if (owner == Owner::kTemporary && now > temporary_peak_) {
    temporary_peak_ = now;
  }
}

void MemoryMeter::begin_method(const std::string& method) {
  method_ = method;
}

void MemoryMeter::end_phase(const std::string& name, const std::string& method) {
  end_init();
  take_peak();
  Phase phase;
  phase.name = name;
  phase.method = method;
  std::copy(tally_.begin(), tally_.end(), phase.tally.begin());
  phase.heap = heap_now();
  phase.mappings = mappings_now();
  phase.peak = std::exchange(phase_peak_, std::nullopt);
  phases_.push_back(std::move(phase));
}

std::optional<int64_t> MemoryMeter::peak() const {
  std::optional<int64_t> most;
  for (const Phase& phase : phases_) {
    raise_to(most, phase.peak);
  }
  return most;
}

void MemoryMeter::begin_init(size_t segment, const char* backend) {
  end_init();
  take_peak();
  DelegateInit init;
  init.method = method_;
  init.segment = segment;
  init.backend = backend == nullptr ? "" : backend;
  inits_.push_back(std::move(init));
  before_ = uncounted();
  in_init_ = true;
}

void MemoryMeter::end_init() {
  if (!in_init_) {
    return;
  }
  in_init_ = false;
  const auto now = uncounted();
  DelegateInit& init = inits_.back();
  if (now && before_) {
    init.growth = *now - *before_;
  }
  init.peak = take_peak();
}

void MemoryMeter::begin_instruction() {
  take_peak();
  temporary_peak_ = 0;
  before_ = uncounted();
}

void MemoryMeter::end_instruction(int64_t chain, int64_t instruction) {
  const auto now = uncounted();
  const auto peak = take_peak();
  InstructionMemory& found = instructions_[{method_, chain, instruction}];
  if (now && before_) {
    auto& growth = found.executions == 0 ? found.first : found.later;
    growth = growth.value_or(0) + *now - *before_;
  }
  if (found.executions++ == 0) {
    found.peak = peak;
  }
  found.temporary = std::max(found.temporary, temporary_peak_.load());
}

std::optional<int64_t> MemoryMeter::uncounted() const {
  const auto heap = heap_now();
  if (!heap) {
    return std::nullopt;
  }
  int64_t counted = 0;
  for (const auto& bytes : tally_) {
    counted += bytes;
  }
  return heap->used - counted;
}

std::optional<int64_t> MemoryMeter::take_peak() {
  if (!peaks_) {
    return std::nullopt;
  }
  const auto peak = peak_now();
  reset_peak();
  raise_to(phase_peak_, peak);
  return peak;
}

} // namespace etscope
