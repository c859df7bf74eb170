// etscope-runner: runs a program on the ExecuTorch runtime and writes down what happened.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "common/data_sink.h"
#include "common/failure.h"
#include "common/flags.h"
#include "common/options.h"
#include "common/output_file.h"
#include "common/platform.h"
#include "common/pool.h"
#include "common/session.h"
#include "runner/generation.h"
#include "runner/name_filter.h"
#include "runner/result.h"
#include "runner/run.h"

namespace etscope {
namespace {

/// Opened before anything runs, so that a folder that is not there is told at once.
std::optional<OutputFile> open_if_asked(const std::string& path) {
  if (path.empty()) {
    return std::nullopt;
  }
  return std::optional<OutputFile>(std::in_place, path);
}

void write_etdump(Tracer& tracer, OutputFile& file) {
  const auto dump = tracer.get_etdump_data();
  const std::unique_ptr<void, void (*)(void*)> owned(dump.buf, std::free);
  if (dump.buf == nullptr || dump.size == 0) {
    throw Failure(kRuntimeFailed, "the runtime gave no ETDump");
  }
  file.write(dump.buf, dump.size);
  file.commit();
}

void check_folder(const std::string& folder) {
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    throw Failure(kBadInput, "--outputs-dir " + folder + ": not a folder");
  }
}

/// Runs the calls; what goes wrong after a pool was too small is told as that.
Record run_in_pools(Session& session, const Options& options) {
  before_giving_up([] {
    if (!pool_failure().empty()) {
      OutputFile::abandon_all();
      say(pool_failure());
      _exit(kPoolTooSmall);
    }
  });
  try {
    return run_calls(session, options);
  } catch (const Failure& failure) {
    if (pool_failure().empty()) {
      throw;
    }
    throw Failure(kPoolTooSmall, pool_failure() + "; " + failure.what());
  }
}

int run(const Options& options) {
  check_folder(options.outputs_dir);
  NameFilter delegates("--delegate-filter", options.delegate_filters);
  NameFilter values("--value-filter", options.value_filters);
  auto etdump = open_if_asked(options.etdump_out);
  auto result = open_if_asked(options.result_out);
  std::optional<DebugFile> debug;
  if (!options.debug_buffer_out.empty()) {
    debug.emplace(options.debug_buffer_out, options.debug_buffer_size);
  }

  const Memory before = memory_now();
  Session session(options);
  Tracer* tracer = session.tracer();
  if (debug) {
    tracer->set_data_sink(&*debug);
  }
  if (!options.delegate_filters.empty()) {
    tracer->set_delegation_intermediate_output_filter(&delegates);
  }
  if (!options.value_filters.empty()) {
    tracer->set_value_filter(&values);
  }
  Record record =
      options.generation.asked ? generate(session, options) : run_in_pools(session, options);
  record.resident_before = before.resident;

  if (debug) {
    debug->finish();
  }
  if (etdump) {
    write_etdump(*tracer, *etdump);
  }
  const std::string text = write_outputs(record, options, session);
  if (result) {
    result->write(text.data(), text.size());
    result->commit();
  }
  bool passed = true;
  for (const Verdict& verdict : record.verification) {
    std::cout << verdict.line() << std::endl;
    passed = passed && verdict.passed;
  }
  return passed ? kFine : kOutOfTolerance;
}

int run_program(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  if (options.help) {
    std::cout << help_text();
    return kFine;
  }
  if (options.version) {
    std::cout << "etscope-runner, ExecuTorch " << ETSCOPE_EXECUTORCH_VERSION << std::endl;
    return kFine;
  }
  init_runtime();
  return run(options);
}

} // namespace
} // namespace etscope

int main(int argc, char** argv) {
  return etscope::ended([=] { return etscope::run_program(argc, argv); });
}
