// Generates tokens with the program of a language model.
#pragma once

#include "common/options.h"
#include "common/session.h"
#include "runner/run.h"

namespace etscope {

/// Does the generations that the command line asks for, one after another. SIGINT ends them after
/// the call that is executed then.
Record generate(Session& session, const Options& options);

} // namespace etscope
