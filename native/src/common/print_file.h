// Prints files as text, where a board has no file system: over a UART, RTT or a debugger's console.
// `etscope runs import LOG` takes them out of the log. Needs nothing else of etscope or ExecuTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace etscope {

/// Prints bytes as the shell command `echo "…" | base64 -d >NAME`, as ExecuTorch's Arm runner does.
///
/// put: takes one `char` at a time. No memory is allocated, also none for the text.
template <typename Put>
void print_file(const char* name, const void* data, size_t size, Put put) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = static_cast<const uint8_t*>(data);
  const auto print = [&put](const char* text) {
    for (; *text != '\0'; ++text) {
      put(*text);
    }
  };
  print("echo \"");
  for (size_t at = 0; at < size; at += 3) {
    const size_t count = size - at < 3 ? size - at : 3;
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) {
      group = group << 8 | (i < count ? bytes[at + i] : 0);
    }
    for (size_t i = 0; i < 4; ++i) {
      put(i <= count ? kLetters[group >> (18 - 6 * i) & 63] : '=');
    }
  }
  print("\" | base64 -d >");
  print(name);
  put('\n');
}

} // namespace etscope
