#include "statistics.h"

namespace etscope {

using executorch::aten::Tensor;

Statistics statistics_of(const Tensor&) {
  return {};
}

uint64_t count_nan(const Tensor&) {
  return 0;
}

uint64_t count_inf(const Tensor&) {
  return 0;
}

uint64_t count_below(const Tensor&, double) {
  return 0;
}

uint64_t count_above(const Tensor&, double) {
  return 0;
}

uint64_t fingerprint(const Tensor&) {
  return 0;
}

} // namespace etscope
