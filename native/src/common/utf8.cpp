#include "common/utf8.h"

namespace etscope {

size_t utf8_sequence(const std::string& text, size_t at) {
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

bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_sequence(text, i);
    if (length == 0) {
      return false;
    }
    i += length;
  }
  return true;
}

std::string as_utf8(const std::string& text, size_t most) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_sequence(text, i);
    const std::string next = length == 0 ? "\xEF\xBF\xBD" : text.substr(i, length);
    if (result.size() + next.size() > most) {
      break;
    }
    result += next;
    i += length == 0 ? 1 : length;
  }
  return result;
}

} // namespace etscope
