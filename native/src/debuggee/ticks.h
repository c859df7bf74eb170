// A clock that costs nothing to look at, for what is timed often.
#pragma once

#include <cstdint>

namespace etscope {

/// Counts of the processor's clock where it has one that never stops or changes its pace, else ns.
int64_t ticks_now();

/// ns of so many ticks. Takes a millisecond the first time.
int64_t ns_of_ticks(int64_t ticks);

} // namespace etscope
