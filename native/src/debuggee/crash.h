// When the program kills its process: the last words.
#pragma once

#include <functional>
#include <string>

namespace etscope {

/// From now on what the runtime or a signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) ends the
/// process for calls `last_words` once, with the reason ("the runtime aborted", "SIGSEGV"), and
/// then the process ends as it would have; after 10 seconds in any case. nullptr: nothing is said.
void on_crash(std::function<void(const std::string& reason)> last_words);

} // namespace etscope
