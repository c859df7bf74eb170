// The backend "BackendWithCompilerDemo", for which the Python package can lower programs. It copies
// its first argument to its last, and logs a value of every kind and type that a delegate may log.
// An input that starts with -13 makes the runtime abort.

#include <cstring>
#include <vector>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/platform/assert.h>

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::runtime::ArrayRef;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::EventTracer;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;

namespace {

constexpr auto kNoId = static_cast<executorch::runtime::DebugHandle>(-1);

template <typename T>
void log(EventTracer* tracer, const char* name, ScalarType type, std::vector<T> values) {
  executorch::aten::SizesType size = static_cast<int>(values.size());
  executorch::aten::DimOrderType order = 0;
  executorch::aten::StridesType stride = 1;
  TensorImpl impl(type, 1, &size, values.data(), &order, &stride);
  executorch::runtime::event_tracer_log_output_delegate(tracer, name, kNoId, Tensor(&impl));
}

class DemoBackend final : public executorch::runtime::BackendInterface {
 public:
  bool is_available() const override {
    return true;
  }

  Result<DelegateHandle*> init(
      BackendInitContext&, FreeableBuffer*, ArrayRef<CompileSpec>) const override {
    return nullptr;
  }

  Error execute(
      BackendExecutionContext& context, DelegateHandle*, Span<EValue*> args) const override {
    const Tensor& input = args[0]->toTensor();
    const Tensor& output = args[args.size() - 1]->toTensor();
    ET_CHECK_MSG(input.const_data_ptr<float>()[0] != -13.0f, "the backend gives up");
    std::memcpy(output.mutable_data_ptr(), input.const_data_ptr(), input.nbytes());

    EventTracer* tracer = context.event_tracer();
    using executorch::runtime::event_tracer_log_output_delegate;
    event_tracer_log_output_delegate(tracer, "input", kNoId, input);
    event_tracer_log_output_delegate(tracer, nullptr, 7, input);
    event_tracer_log_output_delegate(tracer, "int", kNoId, 3);
    event_tracer_log_output_delegate(tracer, "bool", kNoId, true);
    event_tracer_log_output_delegate(tracer, "double", kNoId, 0.5);
    const Tensor pair[] = {input, input};
    event_tracer_log_output_delegate(tracer, "list", kNoId, ArrayRef<Tensor>(pair, 2));
    log<uint16_t>(tracer, "half", ScalarType::Half, {0x3C00, 0x0001, 0xFC00});
    log<uint16_t>(tracer, "bfloat16", ScalarType::BFloat16, {0x3F80, 0x0001, 0xFF80});
    log<uint32_t>(tracer, "uint32", ScalarType::UInt32, {0, 0xFFFFFFFF});
    log<uint64_t>(tracer, "uint64", ScalarType::UInt64, {0, 0x7FFFFFFFFFFFFFFF});
    log<uint64_t>(tracer, "uint64_large", ScalarType::UInt64, {0x8000000000000000});
    log<uint8_t>(tracer, "float8", ScalarType::Float8_e5m2, {0x3C});
    return Error::Ok;
  }
};

DemoBackend backend;
const Error registered =
    executorch::runtime::register_backend({"BackendWithCompilerDemo", &backend});

} // namespace
