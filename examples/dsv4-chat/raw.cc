// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/raw.h"

#include <cstdint>
#include <dsv4/dsv4.hpp>
#include <utility>
#include <vector>

#include "examples/console/failure.h"
#include "examples/dsv4-chat/model.h"
#include "examples/dsv4-chat/turn.h"

namespace chat {

int ContinueText(const Options& options, const std::string& prompt, Screen* screen,
                 TurnOutput* output) {
  const dsv4::Engine engine = OpenEngine(options, *screen);
  std::vector<int32_t> ids = engine.tokenizer().Encode(prompt, DSV4_ENCODE_ADDED_TOKENS);
  const int32_t begin = engine.info().bos_token;
  if (ids.empty() || ids[0] != begin) ids.insert(ids.begin(), begin);
  dsv4::SessionOptions session_options;
  session_options.sampling = SamplingOf(engine, options.sampling);
  dsv4::Session session(engine, session_options);
  session.Sync(ids);
  const TurnEnd end = RunTurn(engine, &session, screen, [&] {
    dsv4::StepResult step = session.Step();
    dsv4::Event event;
    event.type = DSV4_PARSER_TEXT;
    event.text = std::move(step.text);
    if (!event.text.empty()) output->Event(event);
    return step.finish;
  });
  dsv4::Event event;
  event.type = DSV4_PARSER_END;
  output->Event(event);
  output->End(end);
  if (options.stats) screen->Notice(StatisticsOf(engine, end));
  return end.finish == DSV4_FINISH_NONE ? kInterrupted : kOk;
}

}  // namespace chat
