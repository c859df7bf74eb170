// result.json and the files of output tensors.
#pragma once

#include <string>
#include <vector>

#include "common/options.h"
#include "common/session.h"
#include "runner/run.h"

namespace etscope {

/// Writes the tensors to `--outputs-dir`; the text of result.json, which names their files, and has
/// what the session's meter and pools tell.
std::string write_outputs(const Record& record, const Options& options, Session& session);

} // namespace etscope
