// Runs a program with what the Python runtime does not offer: a bundled input index in each
// run, allocation events, the other debug and profiling levels, blocks that hold nothing.
//
// It takes one argument, a script. Each line is one command:
//
//   program PATH                     the .pte; the settings below must come before it
//   profiling all|method             what is timed (default all)
//   debug none|outputs|intermediate  which values are logged (default none)
//   sink PATH                        where logged tensors go
//   track_allocations                log allocators and allocations
//   input SCALAR_TYPE SIZES PATH     one input of the next call: 6 1,3,16,16 /tmp/x.raw
//   call METHOD REPEAT INDEX         execute; INDEX is the bundled input's, or -1
//   block NAME                       open an event block and put nothing in it
//   etdump PATH                      write the ETDump; the last line

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <executorch/devtools/etdump/data_sinks/file_data_sink.h>
#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor_ptr.h>
#include <executorch/runtime/platform/runtime.h>

using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::etdump::ETDumpGen;
using executorch::etdump::FileDataSink;
using executorch::extension::MallocMemoryAllocator;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::AllocatorID;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::EventTracerDebugLogLevel;
using executorch::runtime::EventTracerProfilingLevel;

namespace {

[[noreturn]] void fail(const std::string& message) {
  std::cerr << "runner: " << message << std::endl;
  std::exit(1);
}

void check(Error error, const std::string& what) {
  if (error != Error::Ok) {
    fail(what + " failed with error " + std::to_string(static_cast<int>(error)));
  }
}

// ETDumpGen writes a private member that shadows the one set_bundled_input_index sets. Only an
// explicit instantiation may name a private member, hence the detour over a friend.
int& bundled_input_index(ETDumpGen& dump);

template <auto Member>
struct Private {
  friend int& bundled_input_index(ETDumpGen& dump) {
    return dump.*Member;
  }
};

template struct Private<&ETDumpGen::bundled_input_index_>;

// The runtime logs no allocations itself. Allocators belong to a block and must be announced
// right after it was opened, which the runtime does inside load_method and execute.
class TrackingDump : public ETDumpGen {
 public:
  void create_event_block(const char* name) override {
    ETDumpGen::create_event_block(name);
    if (tracks_) {
      method_allocator = track_allocator("MethodAllocator");
      temporary_allocator = track_allocator("TemporaryAllocator");
    }
  }

  void track() {
    tracks_ = true;
  }

  AllocatorID method_allocator = -1;
  AllocatorID temporary_allocator = -1;

 private:
  bool tracks_ = false;
};

class TrackingAllocator : public MallocMemoryAllocator {
 public:
  TrackingAllocator(TrackingDump& dump, AllocatorID TrackingDump::* id) : dump_(dump), id_(id) {}

  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override {
    if (dump_.*id_ >= 0) {
      dump_.track_allocation(static_cast<AllocatorID>(dump_.*id_), size);
    }
    return MallocMemoryAllocator::allocate(size, alignment);
  }

 private:
  TrackingDump& dump_;
  AllocatorID TrackingDump::* id_;
};

std::vector<char> file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail("cannot read " + path);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<SizesType> sizes_of(const std::string& text) {
  std::vector<SizesType> sizes;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    sizes.push_back(std::stoi(part));
  }
  return sizes;
}

class Runner {
 public:
  void execute(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    const auto found = commands_.find(command);
    if (found == commands_.end()) {
      fail("unknown command: " + line);
    }
    found->second(words);
  }

 private:
  using Words = std::istringstream;

  template <typename T = std::string>
  static T next(Words& words) {
    T value;
    if (!(words >> value)) {
      fail("an argument is missing: " + words.str());
    }
    return value;
  }

  void program(Words& words) {
    std::unique_ptr<MallocMemoryAllocator> method;
    std::unique_ptr<MallocMemoryAllocator> temporary;
    if (tracks_allocations_) {
      method = std::make_unique<TrackingAllocator>(*dump_, &TrackingDump::method_allocator);
      temporary = std::make_unique<TrackingAllocator>(*dump_, &TrackingDump::temporary_allocator);
    }
    module_ = std::make_unique<Module>(
        next(words),
        Module::LoadMode::File,
        std::move(owned_dump_),
        std::move(method),
        std::move(temporary));
  }

  void profiling(Words& words) {
    dump_->set_event_tracer_profiling_level(
        next(words) == "method" ? EventTracerProfilingLevel::kProfileMethodOnly
                                : EventTracerProfilingLevel::kProfileAllEvents);
  }

  void debug(Words& words) {
    static const std::map<std::string, EventTracerDebugLogLevel> levels = {
        {"none", EventTracerDebugLogLevel::kNoLogging},
        {"outputs", EventTracerDebugLogLevel::kProgramOutputs},
        {"intermediate", EventTracerDebugLogLevel::kIntermediateOutputs}};
    dump_->set_event_tracer_debug_level(levels.at(next(words)));
  }

  void sink(Words& words) {
    const std::string path = next(words);
    auto created = FileDataSink::create(path.c_str());
    check(created.error(), "opening " + path);
    sink_.emplace(std::move(created.get()));
    dump_->set_data_sink(&*sink_);
  }

  void track_allocations(Words&) {
    tracks_allocations_ = true;
    dump_->track();
  }

  void input(Words& words) {
    const auto type = static_cast<ScalarType>(next<int>(words));
    auto sizes = sizes_of(next(words));
    buffers_.push_back(file_bytes(next(words)));
    inputs_.push_back(
        executorch::extension::make_tensor_ptr(std::move(sizes), buffers_.back().data(), type));
  }

  void call(Words& words) {
    const auto method = next(words);
    const int repeat = next<int>(words);
    const int index = next<int>(words);
    check(module_->load_method(method), "loading " + method);
    const std::vector<EValue> values(inputs_.begin(), inputs_.end());
    bundled_input_index(*dump_) = index;
    for (int i = 0; i < repeat; ++i) {
      check(module_->execute(method, values).error(), "executing " + method);
    }
    bundled_input_index(*dump_) = -1;
    inputs_.clear();
    buffers_.clear();
  }

  void block(Words& words) {
    dump_->create_event_block(next(words).c_str());
  }

  void etdump(Words& words) {
    const auto result = dump_->get_etdump_data();
    if (result.buf == nullptr || result.size == 0) {
      fail("the runtime gave no ETDump");
    }
    std::ofstream file(next(words), std::ios::binary);
    file.write(static_cast<const char*>(result.buf), static_cast<std::streamsize>(result.size));
    std::free(result.buf);
  }

  const std::map<std::string, std::function<void(Words&)>> commands_ = {
      {"program", [this](Words& words) { program(words); }},
      {"profiling", [this](Words& words) { profiling(words); }},
      {"debug", [this](Words& words) { debug(words); }},
      {"sink", [this](Words& words) { sink(words); }},
      {"track_allocations", [this](Words& words) { track_allocations(words); }},
      {"input", [this](Words& words) { input(words); }},
      {"call", [this](Words& words) { call(words); }},
      {"block", [this](Words& words) { block(words); }},
      {"etdump", [this](Words& words) { etdump(words); }}};

  // The module owns the dump once there is a module; `dump_` is valid before and after.
  std::unique_ptr<TrackingDump> owned_dump_ = std::make_unique<TrackingDump>();
  TrackingDump* dump_ = owned_dump_.get();
  std::optional<FileDataSink> sink_;
  std::unique_ptr<Module> module_;
  bool tracks_allocations_ = false;
  std::vector<std::vector<char>> buffers_;
  std::vector<TensorPtr> inputs_;
};

} // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fail("usage: runner SCRIPT");
  }
  executorch::runtime::runtime_init();
  std::ifstream script(argv[1]);
  Runner runner;
  for (std::string line; std::getline(script, line);) {
    runner.execute(line);
  }
  return 0;
}
