// Makes what the product's runner has no flag for: blocks of an ETDump that hold no events.
//
//     empty_blocks PROGRAM ETDUMP INPUT INPUT   runs "forward" on each input, which is one float32
//                                               tensor; opens a block after each
//     empty_blocks "" ETDUMP                    opens one block and runs nothing

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor_ptr.h>
#include <executorch/runtime/platform/runtime.h>

using executorch::etdump::ETDumpGen;
using executorch::extension::Module;

int main(int argc, char** argv) {
  executorch::runtime::runtime_init();
  const std::string program = argv[1];
  auto owned = std::make_unique<ETDumpGen>();
  ETDumpGen& dump = *owned;
  Module module(program, Module::LoadMode::File, std::move(owned));
  if (program.empty()) {
    dump.create_event_block("Only");
  }
  const char* const names[] = {"Between", "Last"};
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
    const auto sizes = module.method_meta("forward")->input_tensor_meta(0)->sizes();
    const auto input =
        executorch::extension::make_tensor_ptr({sizes.begin(), sizes.end()}, bytes.data());
    if (!module.forward(input).ok()) {
      return 1;
    }
    dump.create_event_block(names[i - 3]);
  }
  const auto result = dump.get_etdump_data();
  std::ofstream file(argv[2], std::ios::binary);
  file.write(static_cast<const char*>(result.buf), static_cast<std::streamsize>(result.size));
  std::free(result.buf);
  return file.good() ? 0 : 1;
}
