// SPDX-License-Identifier: Apache-2.0
// include/dsv4/parser.h.
#include <dsv4/parser.h>

#include <memory>
#include <utility>

#include "capi/chat.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/parser_event.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/text/streaming_parser.h"

struct dsv4_parser {
  dsv4::StreamingParser parser;
  bool delivering = false;  // a callback is running
};

namespace dsv4::capi {
namespace {

// Runs `use(parser, sink)`, where the sink calls `callback`.
template <class Use>
absl::Status Deliver(dsv4_parser* handle, dsv4_parser_event_fn callback, void* user, Use&& use) {
  DSV4_RETURN_IF_ERROR(NotNull(handle, "parser"));
  if (callback == nullptr) return InvalidValue("callback", " is NULL");
  if (handle->delivering) return Busy("parser is in use by the call that runs this callback");
  struct Leave {
    bool& delivering;
    ~Leave() { delivering = false; }
  } leave{handle->delivering};
  handle->delivering = true;
  use(handle->parser, [&](const ParserEvent& event) {
    const dsv4_parser_event out = EventOf(event);
    callback(user, &out);
  });
  return absl::OkStatus();
}

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_parser_open(const dsv4_parser_options* options, dsv4_parser** parser,
                             dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    dsv4_parser_options in = DSV4_PARSER_OPTIONS_INIT;
    if (options != nullptr) {
      DSV4_ASSIGN_OR_RETURN(in, CopyIn(options, "options"));
    }
    DSV4_RETURN_IF_ERROR(NotNull(parser, "parser"));
    dsv4::StreamingParser::Options made;
    DSV4_ASSIGN_OR_RETURN(const Thinking thinking, ThinkingFrom(in.thinking, "options.thinking"));
    made.mode = thinking.mode;
    if (in.id_prefix != nullptr) made.id_prefix = in.id_prefix;
    if (const size_t valid = dsv4::ValidUtf8Prefix(made.id_prefix); valid < made.id_prefix.size())
      return dsv4::InvalidValue("options.id_prefix", " is not UTF-8 at byte ", valid);
    *parser = new dsv4_parser{dsv4::StreamingParser(std::move(made))};
    return absl::OkStatus();
  });
}

void dsv4_parser_close(dsv4_parser* parser) noexcept { delete parser; }

dsv4_status dsv4_parser_feed(dsv4_parser* parser, const char* bytes, size_t length,
                             dsv4_parser_event_fn callback, void* user,
                             dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(CheckArray(bytes, length, "bytes"));
    return Deliver(parser, callback, user, [&](dsv4::StreamingParser& target, auto sink) {
      target.Feed({bytes, length}, sink);
    });
  });
}

dsv4_status dsv4_parser_end(dsv4_parser* parser, dsv4_parser_event_fn callback, void* user,
                            dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    return Deliver(parser, callback, user,
                   [](dsv4::StreamingParser& target, auto sink) { target.End(sink); });
  });
}
