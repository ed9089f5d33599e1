// SPDX-License-Identifier: Apache-2.0
// dsv4-chat: a chat with a model on the terminal, and one-shot answers for scripts. Everything it
// knows of the model goes through the public headers.
#include <dsv4/dsv4.h>

#include <exception>
#include <optional>
#include <string>

#include "examples/dsv4-chat/conversation.h"
#include "examples/dsv4-chat/failure.h"
#include "examples/dsv4-chat/interactive.h"
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

int Answer(const Options& options, const std::string& prompt, Screen* screen) {
  if (prompt.empty())
    throw Failure{kUsageError, "the prompt is empty: give one with -p or on standard input"};
  Conversation conversation(options, screen);
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
  Screen screen(options.color);
  if (const std::optional<std::string> prompt = OneShotPrompt(options))
    return Answer(options, *prompt, &screen);
  Conversation conversation(options, &screen);
  return RunInteractive(options, &conversation, &screen);
}

}  // namespace
}  // namespace chat

int main(int argc, char** argv) {
  chat::InstallSignals();
  try {
    return chat::Run(argc, argv);
  } catch (const chat::Failure& failure) {
    if (!failure.message.empty()) chat::WriteErr("dsv4-chat: " + failure.message + "\n");
    if (failure.exit_code == chat::kUsageError) chat::WriteErr("See dsv4-chat --help.\n");
    return failure.exit_code;
  } catch (const std::exception& error) {
    chat::WriteErr(std::string("dsv4-chat: ") + error.what() + "\n");
    return chat::kMemoryError;
  }
}
