// A stream of frames to a debugger: a socket, or two pipes.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "server/wire.h"

namespace etscope {

/// The other end has gone, or does not take what it is sent.
class Gone : public std::exception {
 public:
  const char* what() const noexcept override {
    return "the client is gone";
  }
};

class Connection {
 public:
  /// Takes both descriptors, which may be the same. patience: how many seconds the other end may
  /// stand still in the middle of a frame.
  Connection(int in, int out, int patience) : in_(in), out_(out), patience_(patience) {}
  ~Connection();

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// The next frame, which may take as long as it likes to begin, but then not to stand still.
  /// Nothing when the other end hung up. Throws a Refusal for what is no frame.
  std::optional<wire::Frame> receive();

  /// The first frame, which must be there, whole, after some seconds.
  std::optional<wire::Frame> receive_greeting();

  /// Whether an INTERRUPT has come, or the other end went away. Does not wait; other frames are
  /// kept for `receive`.
  bool interrupted();

  /// Throws Gone.
  void send(uint16_t kind, uint32_t number, const std::vector<uint8_t>& body);

  /// Whether a frame is sent just now, so that no other can be sent in between.
  bool sending() const {
    return sending_;
  }

  /// Says that nothing more comes, and waits a moment for the other end to read what it was sent.
  void hang_up();

 private:
  std::optional<wire::Frame> next(size_t most_body, std::optional<int64_t> whole_until);
  bool fill(size_t wanted, std::optional<int64_t> whole_until);
  bool read_some();
  void write_all(const uint8_t* data, size_t size);
  size_t buffered() const {
    return inbox_.size() - start_;
  }

  const int in_;
  int out_;
  const int patience_;
  std::vector<uint8_t> inbox_; // from start_ on it has not been looked at
  size_t start_ = 0;
  bool ended_ = false;
  volatile bool sending_ = false;
};

} // namespace etscope
