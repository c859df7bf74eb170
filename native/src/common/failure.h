// What goes wrong, and the exit code it ends the process with.
#pragma once

#include <stdexcept>
#include <string>

#include <executorch/runtime/core/error.h>

namespace etscope {

enum ExitCode : int {
  kFine = 0,
  kOutOfTolerance = 1,
  kUsage = 2,
  kBadInput = 3,
  kRuntimeFailed = 5,
  kDebugBufferFull = 6,
  kPoolTooSmall = 7,
};

class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& message) : std::runtime_error(message), code(code) {}

  const ExitCode code;
};

/// "Error::InvalidArgument (18)".
std::string describe(executorch::runtime::Error error);

/// Throws unless `error` is Ok; `doing` completes "… failed": "loading method 'forward'".
void check(executorch::runtime::Error error, const std::string& doing);

/// "etscope-runner", unless it is said. The text must stay.
void set_program_name(const char* name);
const char* program_name();

/// One line on stderr that starts with the program's name.
void say(const std::string& message);

} // namespace etscope
