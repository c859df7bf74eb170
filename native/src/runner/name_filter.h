// Which intermediate outputs are logged.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include <executorch/runtime/core/event_tracer.h>

namespace etscope {

/// Keeps what one of the patterns matches whole: a name, or an id in decimal digits.
class NameFilter : public executorch::runtime::EventTracerFilterBase {
 public:
  /// Throws when a pattern is no regular expression. flag: names the patterns in the message.
  NameFilter(const char* flag, const std::vector<std::string>& patterns);

  /// True DROPS the output: that is what ETDumpGen takes it for, whatever upstream's header says.
  executorch::runtime::Result<bool> filter(
      const char* name, executorch::runtime::DelegateDebugIntId id) override;

 private:
  std::vector<std::regex> patterns_;
};

} // namespace etscope
