#include "runner/name_filter.h"

#include <algorithm>

#include "common/failure.h"

namespace etscope {

NameFilter::NameFilter(const char* flag, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    try {
      patterns_.emplace_back(pattern);
    } catch (const std::regex_error& error) {
      throw Failure(
          kUsage,
          std::string(flag) + " " + pattern + ": not a regular expression: " + error.what());
    }
  }
}

executorch::runtime::Result<bool> NameFilter::filter(
    const char* name, executorch::runtime::DelegateDebugIntId id) {
  const std::string text = name != nullptr ? name : std::to_string(id);
  return std::none_of(patterns_.begin(), patterns_.end(), [&](const std::regex& pattern) {
    return std::regex_match(text, pattern);
  });
}

} // namespace etscope
