// The command line of etdb-server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace etscope {

struct ServerOptions {
  std::string program; // "": clients upload theirs
  std::string data;
  std::vector<std::string> libraries;

  std::string host = "127.0.0.1";
  std::string port = "2345";
  bool stdio = false;
  int descriptor = -1; // of a connection that is there already

  std::string token; // "": none is asked for
  uint64_t max_upload = uint64_t{4} << 30;
  int patience = 30; // seconds

  bool help = false;
  bool version = false;
};

/// Throws a Failure for what cannot be meant. Reads the file of the token, or $ETDB_TOKEN.
ServerOptions parse_server_options(int argc, char** argv);

/// Throws a Failure unless there is a token that can be shown to strangers.
void check_token_for_strangers(const ServerOptions& options);

std::string server_help();

} // namespace etscope
