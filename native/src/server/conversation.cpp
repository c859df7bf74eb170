#include "server/conversation.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "common/failure.h"
#include "common/platform.h"
#include "debuggee/crash.h"
#include "server/messages.h"

namespace etscope {

using executorch::runtime::EValue;
using wire::Code;
using wire::Frame;
using wire::Reader;
using wire::Refusal;

namespace {

constexpr int32_t kMostThreads = 1024;
constexpr unsigned kTraced = 1, kKeep = 2; // flags of BEGIN

/// The code that a failure has in the answer to a request of that kind.
Code code_of(uint16_t kind, const Failure& failure) {
  if (kind == wire::kLoad) {
    return Code::kProgram;
  }
  if (failure.code == kUsage) { // not now
    return Code::kState;
  }
  if (failure.code == kDebugBufferFull) {
    return Code::kLimit;
  }
  switch (kind) {
    case wire::kInputs:
      return failure.code == kBadInput ? Code::kInputs : Code::kRuntime;
    case wire::kDescribe:
    case wire::kStatistics:
    case wire::kRead:
    case wire::kWrite:
      return Code::kValue;
    default:
      return Code::kRuntime;
  }
}

/// In a time that does not depend on where they differ.
bool same(const std::string& given, const std::string& token) {
  volatile unsigned difference = given.size() == token.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference = difference |
        static_cast<unsigned>(
                     static_cast<unsigned char>(given[i]) ^
                     static_cast<unsigned char>(token[i % token.size()]));
  }
  return difference == 0;
}

std::string architecture() {
  utsname names = {};
  return uname(&names) == 0 ? names.machine : "";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

size_t piece_size(Reader& reader) {
  const auto count = reader.number<uint64_t>();
  if (count > wire::kMostPiece) {
    throw Refusal(Code::kLimit, "a piece of " + std::to_string(count) + " bytes: 16 MiB at most");
  }
  return static_cast<size_t>(count);
}

/// Bytes of a memory, fewer at its end, none behind it.
wire::Writer piece_of(const uint8_t* data, size_t size, uint64_t first, size_t count) {
  const size_t begin = static_cast<size_t>(std::min<uint64_t>(first, size));
  wire::Writer answer;
  answer.bytes(data + begin, std::min(count, size - begin));
  return answer;
}

} // namespace

Conversation::Conversation(
    Connection& connection, const ServerOptions& options, ServedProgram& served)
    : connection_(connection), options_(options), served_(served), staging_(options.max_upload) {}

void Conversation::run() {
  keep_log();
  on_crash([this](const std::string& reason) { say_last_words(reason); });
  try {
    if (greet()) {
      while (answer_next()) {
      }
    }
    connection_.hang_up();
  } catch (const Gone&) {
  }
  on_crash(nullptr);
}

bool Conversation::greet() {
  std::optional<Frame> frame;
  try {
    frame = connection_.receive_greeting();
    if (frame && frame->header.kind != wire::kHello) {
      wire::malformed("a greeting comes first");
    }
  } catch (const Refusal& refusal) {
    refuse(frame ? frame->header.number : 0, refusal);
    return false;
  }
  if (!frame) {
    return false;
  }
  try {
    answer(*frame);
    return true;
  } catch (const Refusal& refusal) {
    refuse(frame->header.number, refusal);
    return false;
  }
}

/// Whether the conversation goes on.
bool Conversation::answer_next() {
  std::optional<Frame> frame;
  try {
    frame = connection_.receive();
    if (!frame) {
      return false;
    }
    answer(*frame);
    return frame->header.kind != wire::kBye;
  } catch (const Refusal& refusal) {
    refuse(frame ? frame->header.number : 0, refusal);
    return !refusal.ends();
  }
}

/// Throws nothing but a Refusal, or Gone.
void Conversation::answer(const Frame& frame) {
  const auto& header = frame.header;
  if (header.size != frame.body.size()) {
    wire::malformed("a frame of " + std::to_string(header.size) + " bytes is too long");
  }
  if (header.zero != 0) {
    wire::malformed("a header with " + std::to_string(header.zero) + " where there is 0");
  }
  Reader reader(frame.body);
  wire::Writer done;
  try {
    done = dispatch(header.kind, reader);
  } catch (const Failure& failure) {
    throw Refusal(code_of(header.kind, failure), failure.what());
  } catch (const std::bad_alloc&) {
    throw Refusal(Code::kLimit, "there is not enough memory");
  } catch (const std::length_error&) {
    throw Refusal(Code::kLimit, "there is not enough memory");
  }
  if (done.body().size() > wire::kMostBody) {
    throw Refusal(Code::kLimit, "the answer has " + std::to_string(done.body().size()) + " bytes");
  }
  take_log(); // of what went well
  connection_.send(header.kind | wire::kAnswer, header.number, done.body());
}

wire::Writer Conversation::dispatch(uint16_t kind, Reader& reader) {
  switch (kind) {
    case wire::kHello:
      return hello(reader);
    case wire::kUpload:
      return upload(reader);
    case wire::kLoad:
      return load(reader);
    case wire::kInputs:
      return set_inputs(reader);
    case wire::kBegin:
      return begin(reader);
    case wire::kGo:
      return go(reader);
    case wire::kGoTo:
      return go_to(reader);
    case wire::kDescribe:
      return describe(reader);
    case wire::kStatistics:
      return statistics(reader);
    case wire::kRead:
      return read(reader);
    case wire::kWrite:
      return write(reader);
    case wire::kCore:
      return make_core(reader);
    case wire::kFetch:
      return fetch(reader);
    case wire::kInterrupt: // of a run that has ended
    case wire::kBye:
      reader.finish();
      return {};
    default:
      wire::malformed("there is no request of the kind " + std::to_string(kind));
  }
}

void Conversation::refuse(uint32_t number, const Refusal& refusal) {
  wire::Writer error;
  error.number(static_cast<uint16_t>(refusal.code));
  error.text(refusal.what());
  error.text(take_log());
  connection_.send(wire::kError, number, error.body());
}

wire::Writer Conversation::hello(Reader& reader) {
  if (has_greeted_) {
    throw Refusal(Code::kState, "the greeting was said");
  }
  if (std::memcmp(reader.take(8), wire::kMagic, 8) != 0) {
    wire::malformed("this is not a debugger of etscope");
  }
  const auto version = reader.number<uint16_t>();
  if (version != wire::kVersion) {
    throw Refusal(
        Code::kVersion,
        "the client speaks version " + std::to_string(version) + " of the protocol, this server " +
            std::to_string(wire::kVersion));
  }
  const std::string token = reader.text();
  reader.finish();
  if (!options_.token.empty() && !same(token, options_.token)) {
    throw Refusal(Code::kToken, token.empty() ? "a token is needed" : "the token is wrong");
  }
  has_greeted_ = true;
  served_.refresh();
  wire::Writer answer;
  answer.number(wire::kVersion);
  answer.text(ETSCOPE_EXECUTORCH_VERSION);
  answer.text(architecture());
  answer.flag(served_.is_there());
  if (served_.is_there()) {
    answer.number(served_.size());
    answer.number(served_.checksum());
    answer.text(served_.name());
  }
  return answer;
}

wire::Writer Conversation::upload(Reader& reader) {
  const auto offset = reader.number<uint64_t>();
  const auto size = reader.number<uint64_t>();
  if (size != reader.left()) {
    reader.fail(
        std::to_string(size) + " bytes announced, " + std::to_string(reader.left()) + " there");
  }
  staging_.put(offset, reader.take(static_cast<size_t>(size)), static_cast<size_t>(size));
  return {};
}

wire::Writer Conversation::load(Reader& reader) {
  const auto source = reader.number<uint8_t>();
  if (source > 1) {
    reader.fail("a program from " + std::to_string(source));
  }
  const std::string method = reader.text();
  const auto threads = reader.number<int32_t>();
  if (threads < 0) {
    reader.fail(std::to_string(threads) + " threads");
  }
  OutputTable outputs = wire::read_outputs(reader);
  reader.finish();
  if (threads > kMostThreads) {
    throw Refusal(Code::kLimit, std::to_string(threads) + " threads: 1024 at most");
  }
  const int64_t start = now_ns();
  open(source == 1, method, threads, std::move(outputs));
  const int64_t took = now_ns() - start;
  wire::Writer answer;
  answer.text(debuggee_->method());
  answer.number(static_cast<uint64_t>(took));
  answer.count(debuggee_->value_count());
  answer.count(debuggee_->input_count());
  return answer;
}

void Conversation::open(
    bool staged, const std::string& method, int32_t threads, OutputTable outputs) {
  if (staged ? staging_.size() == 0 : !served_.is_there()) {
    throw Refusal(
        Code::kState,
        staged ? "no program was uploaded" : "this server was started without a program");
  }
  debuggee_.reset();
  session_.reset();
  core_.reset();
  has_inputs_ = has_begun_ = false;
  Options options;
  options.program = staged ? staging_.path() : served_.path();
  options.data = options_.data;
  options.libraries = options_.libraries;
  use_threads(threads);
  try {
    auto session = std::make_unique<Session>(options);
    debuggee_ = std::make_unique<Debuggee>(*session, method, std::move(outputs));
    session_ = std::move(session);
  } catch (const Failure& failure) {
    throw Failure(
        failure.code,
        replaced(
            failure.what(), options.program, staged ? "the uploaded program" : served_.name()));
  }
}

void Conversation::use_threads(int32_t threads) {
  if (threads == 0 && !default_threads_) {
    return;
  }
  if (!default_threads_) {
    default_threads_ = thread_count().value_or(1);
  }
  set_threads(
      threads == 0 ? static_cast<uint32_t>(*default_threads_) : static_cast<uint32_t>(threads));
}

Debuggee& Conversation::loaded() {
  if (debuggee_ == nullptr) {
    throw Refusal(Code::kState, "no program is loaded (LOAD)");
  }
  return *debuggee_;
}

Debuggee& Conversation::begun() {
  Debuggee& debuggee = loaded();
  if (!has_begun_) {
    throw Refusal(Code::kState, "no run has begun (BEGIN)");
  }
  return debuggee;
}

wire::Writer Conversation::set_inputs(Reader& reader) {
  Debuggee& debuggee = loaded();
  const size_t count = reader.count(1);
  if (count != debuggee.input_count()) { // before memory is asked for
    throw Refusal(
        Code::kInputs,
        "method '" + debuggee.method() + "' takes " + std::to_string(debuggee.input_count()) +
            " inputs, not " + std::to_string(count));
  }
  std::vector<Value> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(wire::read_value(reader, staging_, Code::kInputs));
  }
  reader.finish();
  debuggee.set_inputs(values);
  has_inputs_ = true;
  return {};
}

wire::Writer Conversation::begin(Reader& reader) {
  const auto flags = reader.number<uint8_t>();
  reader.finish();
  if (flags > (kTraced | kKeep)) {
    reader.fail("flags " + std::to_string(flags));
  }
  Debuggee& debuggee = loaded();
  if (!has_inputs_ && debuggee.input_count() > 0) {
    throw Refusal(Code::kState, "the method has no inputs yet (INPUTS)");
  }
  const bool keep = (flags & kKeep) != 0;
  core_.reset();
  has_begun_ = has_begun_ && keep; // a run that nothing can go on from stays
  const Stopped stopped = debuggee.begin((flags & kTraced) != 0, keep);
  has_begun_ = true;
  wire::Writer answer;
  wire::write_stopped(answer, stopped);
  return answer;
}

wire::Writer Conversation::go(Reader& reader) {
  const auto most = reader.number<uint64_t>();
  const auto stops = reader.bytes();
  const auto tests = wire::read_tests(reader);
  reader.finish();
  wire::Writer answer;
  wire::write_stopped(
      answer, begun().go(most, stops, tests, [this] { return connection_.interrupted(); }));
  return answer;
}

wire::Writer Conversation::go_to(Reader& reader) {
  const auto step = reader.number<uint64_t>();
  reader.finish();
  wire::Writer answer;
  wire::write_stopped(answer, begun().go_to(step, [this] { return connection_.interrupted(); }));
  return answer;
}

wire::Writer Conversation::describe(Reader& reader) {
  const auto index = reader.number<uint32_t>();
  reader.finish();
  wire::Writer answer;
  wire::write_description(answer, loaded().value(index));
  return answer;
}

wire::Writer Conversation::statistics(Reader& reader) {
  const auto index = reader.number<uint32_t>();
  reader.finish();
  const Statistics found = loaded().statistics(index);
  wire::Writer answer;
  for (const uint64_t count : {found.elements, found.nan, found.plus_inf, found.minus_inf}) {
    answer.number(count);
  }
  for (const double number : {found.least, found.greatest, found.mean, found.deviation}) {
    answer.number(number);
  }
  return answer;
}

wire::Writer Conversation::read(Reader& reader) {
  const auto index = reader.number<uint32_t>();
  const auto first = reader.number<uint64_t>();
  const size_t count = piece_size(reader);
  reader.finish();
  const EValue& value = loaded().value(index);
  if (!value.isTensor()) {
    throw Refusal(Code::kValue, "value " + std::to_string(index) + " is no tensor");
  }
  const auto& tensor = value.toTensor();
  const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  if (data == nullptr && tensor.nbytes() > 0) {
    throw Refusal(Code::kValue, "value " + std::to_string(index) + " has no memory");
  }
  return piece_of(data, tensor.nbytes(), first, count);
}

wire::Writer Conversation::write(Reader& reader) {
  const auto index = reader.number<uint32_t>();
  const Value value = wire::read_value(reader, staging_, Code::kValue);
  reader.finish();
  begun().write(index, value);
  return {};
}

wire::Writer Conversation::make_core(Reader& reader) {
  reader.finish();
  Debuggee& debuggee = begun();
  core_.reset();
  core_ = debuggee.core();
  wire::Writer answer;
  answer.number<uint64_t>(core_->etdump.size());
  answer.number<uint64_t>(core_->debug_buffer.size());
  wire::write_differences(answer, core_->differences);
  return answer;
}

wire::Writer Conversation::fetch(Reader& reader) {
  const auto which = reader.number<uint8_t>();
  if (which > 1) {
    reader.fail("a part of a core with the number " + std::to_string(which));
  }
  const auto first = reader.number<uint64_t>();
  const size_t count = piece_size(reader);
  reader.finish();
  if (!core_) {
    throw Refusal(Code::kState, "there is no core (CORE)");
  }
  const auto& bytes = which == 0 ? core_->etdump : core_->debug_buffer;
  return piece_of(bytes.data(), bytes.size(), first, count);
}

} // namespace etscope
