// etdb-server: runs a program on the ExecuTorch runtime for a debugger at the other end of a
// stream.

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "common/failure.h"
#include "common/flags.h"
#include "common/input_file.h"
#include "common/platform.h"
#include "server/connection.h"
#include "server/conversation.h"
#include "server/listener.h"
#include "server/served_program.h"
#include "server/server_options.h"

namespace etscope {
namespace {

void serve(int in, int out, const ServerOptions& options, ServedProgram& served) {
  Connection connection(in, out, options.patience);
  Conversation(connection, options, served).run();
}

/// Standard input and output, of which nobody else may read a byte or write one: kernels and
/// backends that print do so on standard error from now on.
void serve_stdio(const ServerOptions& options, ServedProgram& served) {
  const int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0 || out < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
      dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    throw Failure(kRuntimeFailed, "standard input, output and error must be open");
  }
  close(nothing);
  serve(in, out, options, served);
}

void serve_descriptor(const ServerOptions& options, ServedProgram& served) {
  if (fcntl(options.descriptor, F_SETFD, FD_CLOEXEC) != 0) {
    throw Failure(
        kUsage, "--fd " + std::to_string(options.descriptor) + ": there is no such descriptor");
  }
  serve(options.descriptor, options.descriptor, options, served);
}

void listen_and_serve(const ServerOptions& options, ServedProgram& served) {
  Listener listener(options);
  std::cout << "listening on " << listener.address() << std::endl;
  listener.run([&](int connection) { serve(connection, connection, options, served); });
}

int run_program(int argc, char** argv) {
  const ServerOptions options = parse_server_options(argc, argv);
  if (options.help) {
    std::cout << server_help();
    return kFine;
  }
  if (options.version) {
    std::cout << "etdb-server, ExecuTorch " << ETSCOPE_EXECUTORCH_VERSION << std::endl;
    return kFine;
  }
  std::signal(SIGPIPE, SIG_IGN);
  init_runtime();
  ServedProgram served(options.program);
  for (const std::string& library : options.libraries) {
    check_readable(library);
  }
  if (!options.data.empty()) {
    check_readable(options.data);
  }
  if (options.stdio) {
    serve_stdio(options, served);
  } else if (options.descriptor >= 0) {
    serve_descriptor(options, served);
  } else {
    listen_and_serve(options, served);
  }
  return kFine;
}

} // namespace
} // namespace etscope

int main(int argc, char** argv) {
  etscope::set_program_name("etdb-server");
  return etscope::ended([=] { return etscope::run_program(argc, argv); });
}
