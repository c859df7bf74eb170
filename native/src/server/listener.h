// Accepts connections, each of which has a process of its own.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "server/server_options.h"

namespace etscope {

class Listener {
 public:
  /// Binds. Throws a Failure, also when others than this machine could connect without a token.
  explicit Listener(const ServerOptions& options);
  ~Listener();

  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// "127.0.0.1:2345".
  std::string address() const;

  /// Until SIGTERM or SIGINT, which end the connections, too. In the process of a connection it
  /// calls `serve`, which takes the descriptor, and returns. There must be no threads.
  void run(const std::function<void(int)>& serve);

 private:
  void catch_signals();
  bool accept_one(const std::function<void(int)>& serve);
  void turn_away(int connection) const;
  void reap(bool wait);
  void end_children();

  int socket_ = -1;
  sigset_t awake_ = {}; // what is blocked while it waits
  bool outlives_terminal_ = false;
  std::vector<pid_t> children_;
};

} // namespace etscope
