// One client and what it debugs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "debuggee/debuggee.h"
#include "server/connection.h"
#include "server/served_program.h"
#include "server/server_options.h"
#include "server/staging.h"
#include "server/wire.h"

namespace etscope {

/// Answers the requests of one connection, in the process that its program may kill.
class Conversation {
 public:
  Conversation(Connection& connection, const ServerOptions& options, ServedProgram& served);

  /// Until one side hangs up.
  void run();

 private:
  using Answer = wire::Writer;

  bool greet();
  bool answer_next();
  void answer(const wire::Frame& frame);
  Answer dispatch(uint16_t kind, wire::Reader& reader);
  void refuse(uint32_t number, const wire::Refusal& refusal);
  void say_last_words(const std::string& reason) noexcept;

  Answer hello(wire::Reader& reader);
  Answer upload(wire::Reader& reader);
  Answer load(wire::Reader& reader);
  Answer set_inputs(wire::Reader& reader);
  Answer begin(wire::Reader& reader);
  Answer go(wire::Reader& reader);
  Answer go_to(wire::Reader& reader);
  Answer describe(wire::Reader& reader);
  Answer statistics(wire::Reader& reader);
  Answer read(wire::Reader& reader);
  Answer write(wire::Reader& reader);
  Answer make_core(wire::Reader& reader);
  Answer fetch(wire::Reader& reader);

  void open(bool staged, const std::string& method, int32_t threads, OutputTable outputs);
  void use_threads(int32_t threads);
  Debuggee& loaded();
  Debuggee& begun();

  Connection& connection_;
  const ServerOptions& options_;
  ServedProgram& served_;
  Staging staging_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Debuggee> debuggee_; // of the session
  std::optional<size_t> default_threads_; // once other than these were asked for
  bool has_greeted_ = false;
  bool has_inputs_ = false;
  bool has_begun_ = false;
  std::optional<Core> core_;
};

} // namespace etscope
