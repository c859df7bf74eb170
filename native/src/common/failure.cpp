#include "common/failure.h"

#include <iostream>

namespace etscope {

using executorch::runtime::Error;

namespace {

const char* name = "etscope-runner";

} // namespace

void set_program_name(const char* text) {
  name = text;
}

const char* program_name() {
  return name;
}

std::string describe(Error error) {
  return std::string(executorch::runtime::to_string(error)) + " (" +
      std::to_string(static_cast<unsigned>(error)) + ")";
}

void check(Error error, const std::string& doing) {
  if (error != Error::Ok) {
    throw Failure(kRuntimeFailed, doing + " failed with " + describe(error));
  }
}

void say(const std::string& message) {
  std::cerr << name << ": " << message << std::endl;
}

} // namespace etscope
