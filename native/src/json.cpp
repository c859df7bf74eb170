#include "json.h"

#include <cmath>
#include <cstdio>

namespace etscope::json {

namespace {

/// Bytes of the valid UTF-8 sequence at `at`; 0 when there is none.
size_t sequence(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(at);
  size_t length = 0;
  unsigned code = 0;
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xC2 && first < 0xE0) {
    length = 2;
    code = first & 0x1F;
  } else if (first >= 0xE0 && first < 0xF0) {
    length = 3;
    code = first & 0x0F;
  } else if (first >= 0xF0 && first < 0xF5) {
    length = 4;
    code = first & 0x07;
  } else {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) {
      return 0;
    }
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return overlong || surrogate || code > 0x10FFFF ? 0 : length;
}

} // namespace

std::string text(const std::string& value) {
  std::string result = "\"";
  for (size_t i = 0; i < value.size();) {
    const size_t length = sequence(value, i);
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
