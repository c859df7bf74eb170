// What follows --input.
#pragma once

#include <string>

#include "common/tensor.h"

namespace etscope {

/// The value that a specification describes; reads the file of a tensor.
///
///   float32:1,3,16,16:FILE[:0,2,3,1]   int:5   double:0.5   bool:true   none
Value parse_input(const std::string& spec);

/// What a specification looks like, for messages.
extern const char* const kInputForms;

} // namespace etscope
