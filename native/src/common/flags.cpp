#include "common/flags.h"

#include <algorithm>
#include <exception>
#include <new>

#include "common/failure.h"

namespace etscope {

void wrong_flags(const std::string& message) {
  throw Failure(kUsage, message + " (--help lists the flags)");
}

SplitFlag::SplitFlag(const std::string& argument) : name(argument) {
  const auto equals = name.find('=');
  if (name.rfind("--", 0) == 0 && equals != std::string::npos) {
    value = name.substr(equals + 1);
    name.resize(equals);
  }
}

std::string SplitFlag::value_of(
    const std::string& wanted, const std::function<const std::string*()>& following) const {
  if (wanted.empty() && value) {
    wrong_flags(name + " takes no value");
  }
  if (wanted.empty() || value) {
    return value.value_or("");
  }
  const std::string* next = following();
  if (next == nullptr) {
    wrong_flags(name + " needs a value: " + wanted);
  }
  return *next;
}

std::string help_line(
    const std::string& name, const std::string& value, const std::string& help, size_t column) {
  std::string text = "  " + name + " " + value;
  text.resize(std::max(text.size() + 1, column), ' ');
  for (const char c : help) {
    text += c;
    if (c == '\n') {
      text.append(column, ' ');
    }
  }
  return text + "\n";
}

int ended(const std::function<int()>& run) {
  try {
    return run();
  } catch (const Failure& failure) {
    say(failure.what());
    return failure.code;
  } catch (const std::bad_alloc&) {
    say("there is not enough memory");
    return kRuntimeFailed;
  } catch (const std::exception& error) {
    say(error.what());
    return kRuntimeFailed;
  }
}

} // namespace etscope
