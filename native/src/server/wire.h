// The bytes of the debugger's protocol: docs/reference/etdb-protocol.md. The other end may send
// anything: check what is left before each read, and reserve nothing for a count that it cannot
// hold.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace etscope::wire {

constexpr uint16_t kVersion = 1;
constexpr size_t kHeaderSize = 12;
constexpr size_t kMostBody = size_t{64} << 20;
constexpr size_t kMostBeforeGreeting = size_t{4} << 10;
constexpr size_t kMostPiece = size_t{16} << 20;
constexpr size_t kMostText = size_t{1} << 20;
constexpr size_t kMostDimensions = 16;
constexpr char kMagic[] = "etscope\n"; // 8 bytes and the terminator

enum Kind : uint16_t {
  kHello = 1,
  kUpload = 2,
  kLoad = 3,
  kInputs = 4,
  kBegin = 5,
  kGo = 6,
  kGoTo = 7,
  kDescribe = 8,
  kStatistics = 9,
  kRead = 10,
  kWrite = 11,
  kCore = 12,
  kFetch = 13,
  kInterrupt = 14,
  kBye = 15,
  kDied = 0x4001,
  kCorePart = 0x4002,
  kCoreEnd = 0x4003,
  kAnswer = 0x8000, // the bit that makes an answer's kind of the request's
  kError = 0xFFFF,
};

enum class Code : uint16_t {
  kProtocol = 1,
  kVersion = 2,
  kToken = 3,
  kState = 4,
  kProgram = 5,
  kInputs = 6,
  kValue = 7,
  kRuntime = 8,
  kLimit = 9,
};

/// Why a request is not done. The server hangs up after those of the codes protocol, version and
/// token.
class Refusal : public std::runtime_error {
 public:
  Refusal(Code code, const std::string& message) : std::runtime_error(message), code(code) {}

  bool ends() const {
    return code == Code::kProtocol || code == Code::kVersion || code == Code::kToken;
  }

  const Code code;
};

[[noreturn]] void malformed(const std::string& message);

struct Header {
  uint32_t size = 0;
  uint16_t kind = 0;
  uint16_t zero = 0;
  uint32_t number = 0;

  /// Of 12 bytes.
  static Header of(const uint8_t* bytes);
};

struct Frame {
  Header header;
  std::vector<uint8_t> body;
};

/// Numbers are little-endian on the wire and on all machines that ExecuTorch's files are read on.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

/// Reads a body. Throws a Refusal of the code protocol, which says at which byte, for what is not
/// there.
class Reader {
 public:
  explicit Reader(const std::vector<uint8_t>& body) : body_(body) {}

  template <typename T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }

  bool flag();

  std::string text();

  /// How many elements follow, each of at least `least` bytes.
  size_t count(size_t least);

  std::vector<uint8_t> bytes();

  /// The next bytes, as long as the body is there.
  const uint8_t* take(size_t size);

  size_t left() const {
    return body_.size() - at_;
  }

  /// Throws when there are bytes behind the fields.
  void finish() const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  const std::vector<uint8_t>& body_;
  size_t at_ = 0;
};

class Writer {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    raw(&value, sizeof value);
  }

  void flag(bool value) {
    number<uint8_t>(value ? 1 : 0);
  }

  /// What is no UTF-8 is replaced, and what is too long is cut.
  void text(const std::string& value);

  void count(size_t value) {
    number(static_cast<uint32_t>(value));
  }

  /// With their count.
  void bytes(const void* data, size_t size);

  void raw(const void* data, size_t size);

  const std::vector<uint8_t>& body() const {
    return body_;
  }

 private:
  std::vector<uint8_t> body_;
};

} // namespace etscope::wire
