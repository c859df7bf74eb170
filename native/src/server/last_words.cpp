// What a conversation says when its program kills the process.

#include <algorithm>

#include "server/conversation.h"

namespace etscope {

/// In the handler of a crash: what is sent may be cut short by the process's end.
void Conversation::say_last_words(const std::string& reason) noexcept {
  if (connection_.sending()) {
    return;
  }
  try {
    const bool traced = debuggee_ != nullptr && debuggee_->keeps_trace();
    const Location where = debuggee_ != nullptr ? debuggee_->running() : Location();
    wire::Writer died;
    died.text(reason);
    died.number(debuggee_ != nullptr ? debuggee_->step() : uint64_t{0});
    died.number(where.chain);
    died.number(where.instruction);
    died.flag(traced);
    connection_.send(wire::kDied, 0, died.body());
    if (!traced) {
      return;
    }
    // Now: making a core of what the crash has left may be the next one.
    const Core core = debuggee_->core_of_crash();
    if (core.etdump.empty()) {
      return;
    }
    const std::vector<uint8_t>* parts[] = {&core.etdump, &core.debug_buffer};
    for (uint8_t which = 0; which < 2; ++which) {
      for (size_t at = 0; at < parts[which]->size(); at += wire::kMostPiece) {
        wire::Writer part;
        part.number(which);
        part.bytes(
            parts[which]->data() + at, std::min(wire::kMostPiece, parts[which]->size() - at));
        connection_.send(wire::kCorePart, 0, part.body());
      }
    }
    connection_.send(wire::kCoreEnd, 0, {});
  } catch (...) {
  }
}

} // namespace etscope
