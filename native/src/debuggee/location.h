// Where in a program.
#pragma once

#include <cstdint>

namespace etscope {

/// An instruction; both are UINT32_MAX: none.
struct Location {
  uint32_t chain = UINT32_MAX;
  uint32_t instruction = UINT32_MAX;
};

inline bool operator==(const Location& a, const Location& b) {
  return a.chain == b.chain && a.instruction == b.instruction;
}
inline bool operator!=(const Location& a, const Location& b) {
  return !(a == b);
}

/// Instructions that ran one after the other.
struct Range {
  uint32_t chain, first, count;
};

} // namespace etscope
