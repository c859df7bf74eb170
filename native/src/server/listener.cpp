#include "server/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "common/failure.h"
#include "server/wire.h"

namespace etscope {

namespace {

constexpr size_t kMostConnections = 64;
constexpr int kBacklog = 64;
constexpr int kPatienceMs = 2000; // from SIGTERM to SIGKILL
constexpr int kIdleSeconds = 60; // until a silent client is asked whether it is there

volatile std::sig_atomic_t ending = 0;

void end_soon(int) {
  ending = 1;
}

void wake_up(int) {}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) {
    sigaddset(&set, signal);
  }
  return set;
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
        (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == 127);
  }
  return false;
}

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value); // what it cannot have it does without
}

/// A client whose machine was switched off ends its process some minutes later.
void prepare(int connection) {
  set(connection, IPPROTO_TCP, TCP_NODELAY, 1);
  set(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
  set(connection, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(connection, IPPROTO_TCP, TCP_KEEPINTVL, kIdleSeconds / 6);
  set(connection, IPPROTO_TCP, TCP_KEEPCNT, 6);
#endif
}

} // namespace

Listener::Listener(const ServerOptions& options) {
  const std::string where = options.host + ":" + options.port;
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(options.host.c_str(), options.port.c_str(), &wanted, &found);
  if (error != 0) {
    throw Failure(kUsage, "--listen " + where + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  if (!is_loopback(found->ai_addr)) {
    check_token_for_strangers(options);
  }
  socket_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ >= 0) {
    set(socket_, SOL_SOCKET, SO_REUSEADDR, 1);
  }
  if (socket_ < 0 || bind(socket_, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(socket_, kBacklog) != 0 ||
      fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK) != 0) {
    const std::string why = std::strerror(errno);
    if (socket_ >= 0) {
      close(socket_);
    }
    throw Failure(kRuntimeFailed, "cannot listen on " + where + ": " + why);
  }
  catch_signals();
}

/// From here on they wait until `run` waits. A shell starts what is in the background with SIGINT
/// ignored, nohup with SIGHUP; only the latter is meant to last.
void Listener::catch_signals() {
  const sigset_t handled = handled_signals();
  sigprocmask(SIG_BLOCK, &handled, &awake_);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  outlives_terminal_ = hangup.sa_handler == SIG_IGN;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    if (signal != SIGHUP || !outlives_terminal_) {
      handle(signal, end_soon);
    }
    sigdelset(&awake_, signal);
  }
  handle(SIGCHLD, wake_up);
  sigdelset(&awake_, SIGCHLD);
}

Listener::~Listener() {
  if (socket_ >= 0) {
    close(socket_);
  }
}

std::string Listener::address() const {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  auto* bound = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getsockname(socket_, bound, &size) != 0 ||
      getnameinfo(
          bound, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) !=
          0) {
    throw Failure(kRuntimeFailed, "the address of the server cannot be told");
  }
  const bool v6 = storage.ss_family == AF_INET6;
  return (v6 ? "[" + std::string(host) + "]" : host) + ":" + port;
}

void Listener::run(const std::function<void(int)>& serve) {
  while (ending == 0) {
    pollfd wanted = {socket_, POLLIN, 0};
    const bool comes = ppoll(&wanted, 1, nullptr, &awake_) > 0;
    reap(false);
    if (comes && ending == 0 && accept_one(serve)) {
      return;
    }
  }
  end_children();
}

/// Whether this is the connection's process, in which all is done.
bool Listener::accept_one(const std::function<void(int)>& serve) {
  const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      const timespec pause = {0, 100000000}; // it would be asked again at once
      nanosleep(&pause, nullptr);
    }
    return false;
  }
  prepare(connection);
  if (children_.size() >= kMostConnections) {
    turn_away(connection);
    return false;
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child > 0) {
    children_.push_back(child);
  }
  if (child != 0) {
    if (child < 0) {
      say(std::string("no process for a connection: ") + std::strerror(errno));
    }
    close(connection);
    return false;
  }
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (getppid() != parent) { // it is gone already
    _exit(kRuntimeFailed);
  }
  close(socket_);
  socket_ = -1;
  children_.clear();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) {
    if (signal != SIGHUP || !outlives_terminal_) {
      handle(signal, SIG_DFL);
    }
  }
  const sigset_t handled = handled_signals();
  sigprocmask(SIG_UNBLOCK, &handled, nullptr);
  serve(connection);
  return true;
}

void Listener::turn_away(int connection) const {
  wire::Writer body;
  body.number(static_cast<uint16_t>(wire::Code::kLimit));
  body.text("this server has " + std::to_string(kMostConnections) + " connections already");
  body.text("");
  wire::Writer frame;
  frame.count(body.body().size());
  frame.number(static_cast<uint16_t>(wire::kError));
  frame.number<uint16_t>(0);
  frame.number<uint32_t>(0);
  frame.raw(body.body().data(), body.body().size());
  send(connection, frame.body().data(), frame.body().size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  close(connection);
}

void Listener::reap(bool wait) {
  const auto ended = [wait](pid_t child) {
    const pid_t found = waitpid(child, nullptr, wait ? 0 : WNOHANG);
    return found == child || (found < 0 && errno == ECHILD);
  };
  children_.erase(std::remove_if(children_.begin(), children_.end(), ended), children_.end());
}

void Listener::end_children() {
  for (const pid_t child : children_) {
    kill(child, SIGTERM);
  }
  for (int waited = 0; !children_.empty() && waited < kPatienceMs; waited += 10) {
    const timespec pause = {0, 10000000};
    nanosleep(&pause, nullptr);
    reap(false);
  }
  for (const pid_t child : children_) {
    kill(child, SIGKILL);
  }
  reap(true);
}

} // namespace etscope
