// JSON as Python's json module reads it: NaN and the infinities have tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace etscope::json {

std::string text(const std::string& value); // bytes that are no UTF-8 become U+FFFD
std::string number(double value); // a float in Python, too
std::string number(int64_t value);
std::string array(const std::vector<std::string>& items);

/// Members of an object, in order.
class Object {
 public:
  Object& add(const std::string& name, const std::string& value);

  std::string str() const {
    return "{" + members_ + "}";
  }

 private:
  std::string members_;
};

template <typename T>
std::string numbers(const T& values) {
  std::vector<std::string> items;
  items.reserve(values.size());
  for (const auto value : values) {
    items.push_back(number(static_cast<int64_t>(value)));
  }
  return array(items);
}

} // namespace etscope::json
