#include "common/json.h"

#include <cmath>
#include <cstdio>

#include "common/utf8.h"

namespace etscope::json {

std::string text(const std::string& value) {
  std::string result = "\"";
  for (size_t i = 0; i < value.size();) {
    const size_t length = utf8_sequence(value, i);
    const char c = value[i];
    if (length == 0) {
      result += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      result += escaped;
    } else {
      result.append(value, i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return result + "\"";
}

std::string number(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  std::string result = digits;
  if (result.find_first_of(".e") == std::string::npos) {
    result += ".0";
  }
  return result;
}

std::string number(int64_t value) {
  return std::to_string(value);
}

std::string array(const std::vector<std::string>& items) {
  std::string result = "[";
  for (const std::string& item : items) {
    result += (result.size() > 1 ? ", " : "") + item;
  }
  return result + "]";
}

Object& Object::add(const std::string& name, const std::string& value) {
  members_ += (members_.empty() ? "" : ", ") + text(name) + ": " + value;
  return *this;
}

} // namespace etscope::json
