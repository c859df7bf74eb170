// The least that a generation takes: a token at a time through Module, the likeliest one next.
//
// bare_loop PROGRAM NEW ROUNDS: `forward` takes a token [1, 1] and its position [1]. Prints the
// median ns from one token to the next.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor_ptr.h>
#include <executorch/runtime/platform/runtime.h>

using executorch::extension::make_tensor_ptr;
using executorch::extension::Module;
using executorch::runtime::EValue;

namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t likeliest(const EValue& output) {
  const auto& logits = output.toTensor();
  const auto vocabulary = static_cast<size_t>(logits.size(logits.dim() - 1));
  const float* row = logits.const_data_ptr<float>() + logits.numel() - vocabulary;
  return std::max_element(row, row + vocabulary) - row;
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    return 2;
  }
  executorch::runtime::runtime_init();
  const int generated = std::atoi(argv[2]);
  const int rounds = std::atoi(argv[3]);
  Module module(argv[1]);
  if (module.load_method("forward") != executorch::runtime::Error::Ok) {
    return 5;
  }
  std::vector<int64_t> times;
  int64_t token = 1;
  int64_t place = 0;
  auto next = make_tensor_ptr({1, 1}, &token, executorch::aten::ScalarType::Long);
  auto where = make_tensor_ptr({1}, &place, executorch::aten::ScalarType::Long);
  for (int round = 0; round < rounds; ++round) {
    token = 1;
    place = 0;
    token = likeliest(module.forward({next, where})->at(0));
    for (place = 1; place < generated; ++place) {
      const int64_t begin = now();
      const auto outputs = module.forward({next, where});
      token = likeliest(outputs->at(0));
      times.push_back(now() - begin);
    }
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  std::printf("%lld\n", static_cast<long long>(times[times.size() / 2]));
  return 0;
}
