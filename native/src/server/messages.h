// The bodies of the debugger's protocol: what the runtime holds as bytes, and bytes as what it
// takes.
#pragma once

#include <string>
#include <vector>

#include "common/tensor.h"
#include "debuggee/debuggee.h"
#include "server/staging.h"
#include "server/wire.h"

namespace etscope::wire {

/// A value that a client gives. Throws a Refusal: of the code protocol for a form that there is
/// not, of the code `misfit` for one that no method takes.
Value read_value(Reader& reader, const Staging& staging, Code misfit);

OutputTable read_outputs(Reader& reader);

std::vector<Test> read_tests(Reader& reader);

/// Tensors without data.
void write_description(Writer& writer, const executorch::runtime::EValue& value);

void write_stopped(Writer& writer, const Stopped& stopped);

void write_differences(Writer& writer, const std::vector<Difference>& differences);

} // namespace etscope::wire
