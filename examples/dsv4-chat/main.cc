// SPDX-License-Identifier: Apache-2.0
// dsv4-chat: a chat with a model on the terminal, and one-shot answers for scripts. Everything it
// knows of the model goes through the public headers.
#include <dsv4/dsv4.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "examples/dsv4-chat/conversation.h"
#include "examples/dsv4-chat/failure.h"
#include "examples/dsv4-chat/interactive.h"
#include "examples/dsv4-chat/json_lines.h"
#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/screen.h"
#include "examples/dsv4-chat/terminal.h"

namespace chat {
namespace {

// -p joined with what is piped in; nothing when a person sits at the terminal and gave no -p.
std::optional<std::string> OneShotPrompt(const Options& options) {
  if (IsTerminal(kStdin)) return options.prompt;
  std::string input = ReadAllInput();
  if (input.ends_with('\n')) input.pop_back();
  if (!options.prompt || options.prompt->empty()) return input;
  return input.empty() ? *options.prompt : *options.prompt + "\n" + input;
}

int Answer(const Options& options, const std::string& prompt, Screen* screen, TurnOutput* output) {
  if (prompt.empty())
    throw Failure{kUsageError, "the prompt is empty: give one with -p or on standard input"};
  Conversation conversation(options, screen, output);
  const Conversation::End end = conversation.Reply(prompt);
  if (options.stats) screen->Notice(conversation.statistics());
  return end == Conversation::End::kInterrupted ? kInterrupted : kOk;
}

int Run(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  if (options.help) return WriteOut(HelpText()), kOk;
  if (options.version) return WriteOut(std::string(dsv4_build_info()) + "\n"), kOk;
  if (dsv4_abi_version() != DSV4_ABI_VERSION)
    throw Failure{kRunTimeError, std::string("libdsv4 ") + dsv4_version() +
                                     " has another ABI than dsv4-chat was built for"};
  if (options.model.empty()) throw Failure{kUsageError, "no model: name its folder with -m DIR"};
  Screen screen(options);
  JsonLines lines;
  TurnOutput* output = &screen;
  if (options.json) output = &lines;
  if (const std::optional<std::string> prompt = OneShotPrompt(options))
    return Answer(options, *prompt, &screen, output);
  Conversation conversation(options, &screen, output);
  return RunInteractive(options, &conversation, &screen);
}

// Known before the options are: an error in them is a JSON object too.
bool AsksForJson(int argc, char** argv) {
  return std::find(argv + 1, argv + argc, std::string_view("--json")) != argv + argc;
}

int Report(const Failure& failure, bool json) {
  if (!failure.message.empty()) WriteErr("dsv4-chat: " + failure.message + "\n");
  if (failure.exit_code == kUsageError) WriteErr("See dsv4-chat --help.\n");
  try {
    if (json) WriteJsonError(failure);
  } catch (const Failure&) {
    // Nobody reads standard output any more.
  }
  return failure.exit_code;
}

}  // namespace
}  // namespace chat

int main(int argc, char** argv) {
  const bool json = argc > 1 && chat::AsksForJson(argc, argv);
  try {
    chat::InstallSignals();
    return chat::Run(argc, argv);
  } catch (const chat::Failure& failure) {
    return chat::Report(failure, json);
  } catch (const std::exception& error) {
    return chat::Report({chat::kMemoryError, error.what()}, json);
  }
}
