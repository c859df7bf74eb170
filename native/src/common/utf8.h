// UTF-8 that may be none.
#pragma once

#include <cstddef>
#include <string>

namespace etscope {

/// Bytes of the valid sequence at `at`; 0 when there is none.
size_t utf8_sequence(const std::string& text, size_t at);

bool is_utf8(const std::string& text);

/// The text, of which bytes that are no UTF-8 become U+FFFD, cut at `most` bytes.
std::string as_utf8(const std::string& text, size_t most);

} // namespace etscope
