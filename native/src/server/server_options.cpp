#include "server/server_options.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>

#include "common/failure.h"
#include "common/flags.h"

namespace etscope {

namespace {

constexpr size_t kLeastToken = 16; // where strangers may try

uint64_t parse_number(const std::string& flag, const std::string& text, uint64_t most) {
  errno = 0;
  const unsigned long long number = std::strtoull(text.c_str(), nullptr, 10);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || errno != 0 || number > most) {
    wrong_flags(flag + " " + text + ": not a number up to " + std::to_string(most));
  }
  return number;
}

/// "HOST:PORT", "[::1]:PORT", ":PORT" and "PORT", the last two on this machine only.
void set_address(ServerOptions& options, const std::string& text) {
  const auto colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    wrong_flags("--listen " + text + ": an address of IPv6 is written [ADDRESS]:PORT");
  }
  options.host = host.empty() ? "127.0.0.1" : host;
  options.port = text.substr(colon == std::string::npos ? 0 : colon + 1);
  parse_number("--listen", options.port, std::numeric_limits<uint16_t>::max());
}

std::string token_in(const std::string& path) {
  std::ifstream file(path);
  std::string token;
  if (!file || !std::getline(file, token)) {
    throw Failure(kBadInput, "cannot read a token from " + path);
  }
  while (!token.empty() && (token.back() == '\r' || token.back() == ' ')) {
    token.pop_back();
  }
  if (token.empty()) {
    throw Failure(kBadInput, path + ": its first line, the token, is empty");
  }
  return token;
}

struct Flag {
  const char* name;
  const char* value;
  const char* help;
  std::function<void(ServerOptions&, const std::string&)> set;
};

const std::vector<Flag>& flags() {
  using O = ServerOptions;
  using S = const std::string;
  static const std::vector<Flag> all = {
      {"--listen",
       "HOST:PORT",
       "where to accept connections (default 127.0.0.1:2345); port 0 is any\n"
       "that is free. What is not this machine alone needs a token",
       [](O& o, S& v) { set_address(o, v); }},
      {"--stdio",
       "",
       "one connection, on standard input and output",
       [](O& o, S&) { o.stdio = true; }},
      {"--fd",
       "N",
       "one connection, on a socket that is open as descriptor N",
       [](O& o, S& v) {
         o.descriptor = static_cast<int>(parse_number("--fd", v, std::numeric_limits<int>::max()));
       }},
      {"--data", "FILE", "external tensors of the program (.ptd)", [](O& o, S& v) { o.data = v; }},
      {"--library",
       "FILE",
       "a shared library with operators or backends; repeatable",
       [](O& o, S& v) { o.libraries.push_back(v); }},
      {"--token-file",
       "FILE",
       "what clients must know, in the first line of a file; without it that of\n"
       "$ETDB_TOKEN is asked for where connections are accepted",
       [](O& o, S& v) { o.token = token_in(v); }},
      {"--max-upload",
       "BYTES",
       "that a connection may upload (default 4 GiB)",
       [](O& o, S& v) { o.max_upload = parse_number("--max-upload", v, INT64_MAX); }},
      {"--patience",
       "SECONDS",
       "how long a client may stand still in the middle of a frame (default 30);\n"
       "to greet it has 10 of them at most",
       [](O& o, S& v) {
         o.patience = static_cast<int>(parse_number("--patience", v, 86400));
         if (o.patience == 0) {
           wrong_flags("--patience 0: it must be at least 1");
         }
       }},
      {"--help", "", "print this", [](O& o, S&) { o.help = true; }},
      {"--version", "", "print the version of ExecuTorch that this was built with", [](O& o, S&) {
         o.version = true;
       }}};
  return all;
}

const Flag& flag_named(const std::string& name) {
  for (const Flag& flag : flags()) {
    if (name == flag.name) {
      return flag;
    }
  }
  wrong_flags("unknown flag " + name);
}

void check_options(ServerOptions& options, bool listens) {
  if ((options.stdio ? 1 : 0) + (options.descriptor >= 0 ? 1 : 0) + (listens ? 1 : 0) > 1) {
    wrong_flags("--listen, --stdio and --fd exclude each other");
  }
  const bool accepts = !options.stdio && options.descriptor < 0;
  const char* token = std::getenv("ETDB_TOKEN");
  if (accepts && options.token.empty() && token != nullptr) {
    options.token = token;
  }
}

} // namespace

void check_token_for_strangers(const ServerOptions& options) {
  const std::string where = "--listen " + options.host + ":" + options.port;
  const std::string hint = "put one of " + std::to_string(kLeastToken) +
      " characters or more in $ETDB_TOKEN or --token-file";
  if (options.token.empty()) {
    throw Failure(kUsage, where + " is not this machine alone, and there is no token: " + hint);
  }
  if (options.token.size() < kLeastToken) {
    throw Failure(kUsage, where + " is not this machine alone, and the token is short: " + hint);
  }
}

ServerOptions parse_server_options(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  ServerOptions options;
  bool listens = false;
  bool has_program = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind('-', 0) != 0) {
      if (has_program) {
        wrong_flags("two programs: " + options.program + " and " + argument);
      }
      if (argument.empty()) {
        wrong_flags("the name of the program is empty");
      }
      options.program = argument;
      has_program = true;
      continue;
    }
    const SplitFlag split(argument);
    const Flag& flag = flag_named(split.name);
    listens = listens || split.name == "--listen";
    flag.set(options, split.value_of(flag.value, [&] {
      return ++i < arguments.size() ? &arguments[i] : nullptr;
    }));
  }
  if (!options.help && !options.version) {
    check_options(options, listens);
  }
  return options;
}

std::string server_help() {
  constexpr size_t kColumn = 24;
  std::ostringstream text;
  text << "usage: etdb-server [PROGRAM] [flags]\n\n"
          "Runs a program (.pte, .bpte) on the ExecuTorch runtime for the debugger etdb, an\n"
          "instruction at a time. Without PROGRAM, the debugger sends it.\n\n";
  for (const Flag& flag : flags()) {
    text << help_line(flag.name, flag.value, flag.help, kColumn);
  }
  text << "\nWho can connect can run programs as you. Exit codes: 0 fine, 2 wrong flags, 3 bad "
          "files,\n"
          "5 no connection can be accepted there.\n";
  return text.str();
}

} // namespace etscope
