// What the command lines of the programs have in common.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace etscope {

/// Throws the Failure of a command line that cannot be meant.
[[noreturn]] void wrong_flags(const std::string& message);

/// "--name=value" in its parts; without "=" the name alone.
struct SplitFlag {
  explicit SplitFlag(const std::string& argument);

  /// The value of a flag that takes one, in words: "" for one that takes none. `following` gives
  /// the next argument, null where there is none.
  std::string value_of(
      const std::string& wanted, const std::function<const std::string*()>& following) const;

  std::string name;
  std::optional<std::string> value;
};

/// A flag in a help text; lines of `help` begin at `column`.
std::string help_line(
    const std::string& name, const std::string& value, const std::string& help, size_t column);

/// The exit code of a program whose work is `run`; what it throws is said.
int ended(const std::function<int()>& run);

} // namespace etscope
