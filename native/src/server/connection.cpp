#include "server/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/session.h"

namespace etscope {

using wire::Frame;
using wire::Header;

namespace {

constexpr int64_t kSecond = 1000000000;
constexpr int kGreeting = 10; // seconds at most
constexpr int kLingerMs = 1000;
constexpr size_t kChunk = size_t{64} << 10;
constexpr size_t kMostAhead = wire::kMostBody + kChunk; // read while something runs
constexpr size_t kKept = size_t{1} << 20; // of memory between frames
constexpr size_t kMostLingered = wire::kMostBody + kChunk;
// What a pipe takes without waiting once it says that it takes anything.
constexpr size_t kPipePiece = 4096;

/// Whether the descriptor is ready within that time (-1: as long as it takes).
bool ready(int descriptor, short events, int milliseconds) {
  const int64_t until = now_ns() + int64_t{milliseconds} * 1000000;
  while (true) {
    pollfd wanted = {descriptor, events, 0};
    const int found = poll(&wanted, 1, milliseconds);
    if (found >= 0) {
      return found > 0;
    }
    if (errno != EINTR) {
      throw Gone();
    }
    if (milliseconds > 0) {
      milliseconds = static_cast<int>(std::max<int64_t>(0, (until - now_ns()) / 1000000));
    }
  }
}

bool hung_up(int descriptor) {
  pollfd wanted = {descriptor, POLLRDHUP, 0};
  return poll(&wanted, 1, 0) > 0 && (wanted.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

} // namespace

Connection::~Connection() {
  close(in_);
  if (out_ >= 0 && out_ != in_) {
    close(out_);
  }
}

std::optional<Frame> Connection::receive() {
  return next(wire::kMostBody, std::nullopt);
}

std::optional<Frame> Connection::receive_greeting() {
  return next(wire::kMostBeforeGreeting, now_ns() + std::min(patience_, kGreeting) * kSecond);
}

std::optional<Frame> Connection::next(size_t most_body, std::optional<int64_t> whole_until) {
  if (!fill(wire::kHeaderSize, whole_until)) {
    return std::nullopt;
  }
  Frame frame;
  frame.header = Header::of(inbox_.data() + start_);
  if (frame.header.size > most_body) {
    // The number goes into the answer, so the header is handed out all the same.
    frame.body.clear();
    start_ += wire::kHeaderSize;
    return frame;
  }
  if (!fill(wire::kHeaderSize + frame.header.size, whole_until)) {
    return std::nullopt;
  }
  const auto first = inbox_.begin() + static_cast<std::ptrdiff_t>(start_ + wire::kHeaderSize);
  frame.body.assign(first, first + frame.header.size);
  start_ += wire::kHeaderSize + frame.header.size;
  if (start_ == inbox_.size()) {
    inbox_.clear();
    start_ = 0;
    if (inbox_.capacity() > kKept) {
      inbox_.shrink_to_fit();
    }
  }
  return frame;
}

/// Reads until that much is there; false when the other end hung up before.
bool Connection::fill(size_t wanted, std::optional<int64_t> whole_until) {
  while (buffered() < wanted) {
    if (ended_) {
      return false;
    }
    int wait = buffered() == 0 ? -1 : patience_ * 1000;
    if (whole_until) {
      wait = static_cast<int>(std::max<int64_t>(0, (*whole_until - now_ns()) / 1000000));
    }
    if (!ready(in_, POLLIN, wait)) {
      wire::malformed(
          whole_until ? "no greeting came in time"
                      : "nothing came for " + std::to_string(patience_) +
                  " seconds in the middle of a frame");
    }
    read_some();
  }
  return true;
}

/// Reads once, after `ready` said that it does not wait; false when nothing came.
bool Connection::read_some() {
  if (start_ > 0) {
    inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<std::ptrdiff_t>(start_));
    start_ = 0;
  }
  const size_t before = inbox_.size();
  inbox_.resize(before + kChunk);
  const ssize_t got = read(in_, inbox_.data() + before, kChunk);
  inbox_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
    ended_ = true;
  }
  return got > 0;
}

bool Connection::interrupted() {
  while (!ended_ && buffered() < kMostAhead && ready(in_, POLLIN, 0) && read_some()) {
  }
  if (ended_ || hung_up(in_)) {
    return true;
  }
  for (size_t at = start_; inbox_.size() - at >= wire::kHeaderSize;) {
    const Header header = Header::of(inbox_.data() + at);
    if (header.kind == wire::kInterrupt) {
      return true;
    }
    if (header.size > inbox_.size() - at - wire::kHeaderSize) {
      break;
    }
    at += wire::kHeaderSize + header.size;
  }
  return false;
}

void Connection::send(uint16_t kind, uint32_t number, const std::vector<uint8_t>& body) {
  wire::Writer head;
  head.number(static_cast<uint32_t>(body.size()));
  head.number(kind);
  head.number<uint16_t>(0);
  head.number(number);
  const bool small = body.size() <= kChunk; // one packet where one does
  if (small) {
    head.raw(body.data(), body.size());
  }
  sending_ = true;
  write_all(head.body().data(), head.body().size());
  if (!small) {
    write_all(body.data(), body.size());
  }
  sending_ = false;
}

void Connection::write_all(const uint8_t* data, size_t size) {
  for (size_t done = 0; done < size;) {
    if (!ready(out_, POLLOUT, patience_ * 1000)) {
      throw Gone();
    }
    ssize_t written = ::send(out_, data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno == ENOTSOCK) {
      written = write(out_, data + done, std::min(size - done, kPipePiece));
    }
    if (written < 0 && errno != EINTR && errno != EAGAIN) {
      throw Gone();
    }
    done += written > 0 ? static_cast<size_t>(written) : 0;
  }
}

// Closing a socket that has something to read takes back what was written last.
void Connection::hang_up() {
  if (shutdown(out_, SHUT_WR) != 0 && out_ != in_) {
    close(out_);
    out_ = -1;
  }
  const int64_t until = now_ns() + int64_t{kLingerMs} * 1000000;
  try {
    for (size_t seen = 0; !ended_ && seen < kMostLingered && now_ns() < until;) {
      inbox_.clear();
      start_ = 0;
      if (ready(in_, POLLIN, kLingerMs)) {
        read_some();
        seen += inbox_.size();
      }
    }
  } catch (const Gone&) {
  }
}

} // namespace etscope
