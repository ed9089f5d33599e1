// SPDX-License-Identifier: Apache-2.0
// dsv4-chat: a chat with a model on the terminal, and one-shot answers for scripts. Everything it
// knows of the model goes through the public headers.
#include <algorithm>
#include <dsv4/dsv4.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/console/command_line.h"
#include "examples/console/device_list.h"
#include "examples/console/failure.h"
#include "examples/console/files.h"
#include "examples/console/hub_models.h"
#include "examples/console/terminal.h"
#include "examples/dsv4-chat/conversation.h"
#include "examples/dsv4-chat/interactive.h"
#include "examples/dsv4-chat/json_lines.h"
#include "examples/dsv4-chat/model.h"
#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/raw.h"
#include "examples/dsv4-chat/screen.h"

namespace chat {
namespace {

// -p, the text of -f and what is piped in, joined by line breaks; nothing when a person sits at the
// terminal and gave neither.
std::optional<std::string> OneShotPrompt(const Options& options) {
  if (IsTerminal(kStdin) && !options.prompt && options.prompt_file.empty()) return std::nullopt;
  std::string joined;
  const auto join = [&](std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    if (!joined.empty() && !text.empty()) joined += '\n';
    joined += text;
  };
  if (options.prompt) joined = *options.prompt;
  if (!options.prompt_file.empty()) join(ReadWholeFile(options.prompt_file));
  if (!IsTerminal(kStdin)) join(ReadAllInput());
  if (joined.empty())
    throw Failure{kUsageError, "the prompt is empty: give one with -p, -f or on standard input"};
  return joined;
}

int Answer(const Options& options, const std::string& prompt, Conversation* conversation,
           Screen* screen) {
  const Conversation::End end = conversation->Reply(prompt);
  if (options.stats) screen->Notice(conversation->statistics());
  return end == Conversation::End::kInterrupted ? kInterrupted : kOk;
}

int Talk(const Options& options, const std::optional<std::string>& prompt, Screen* screen,
         TurnOutput* output) {
  Conversation conversation(options, screen, output);
  if (!options.load_file.empty()) {
    conversation.Load(options.load_file);
    if (options.thinking != DSV4_THINKING_OFF) conversation.set_thinking(options.thinking);
  }
  const int code = prompt ? Answer(options, *prompt, &conversation, screen)
                          : RunInteractive(options, &conversation, screen);
  ClearInterrupt();
  if (!options.save_file.empty()) conversation.Save(options.save_file);
  return code;
}

// Options that leave no meaning to others.
void CheckTogether(const Options& options) {
  const auto refuse = [](const std::string& why, const char* other) {
    throw Failure{kUsageError, std::string(other) + " cannot be combined with " + why};
  };
  if (!options.load_file.empty()) {
    const std::string why = "--load, which brings its own";
    if (!options.system.empty()) refuse(why, "-s");
    if (!options.tools.empty()) refuse(why, "--tools");
  }
  if (!options.raw) return;
  const std::string why = "--raw, which has no conversation";
  if (!options.system.empty()) refuse(why, "-s");
  if (!options.tools.empty()) refuse(why, "--tools");
  if (options.thinking != DSV4_THINKING_OFF) refuse(why, "--think");
  if (options.chat_encoder != DSV4_CHAT_ENCODER_AUTO) refuse(why, "--chat-encoder");
  if (!options.load_file.empty()) refuse(why, "--load");
  if (!options.save_file.empty()) refuse(why, "--save");
}

int Run(int argc, char** argv) {
  Options options = ParseOptions(argc, argv);
  if (const std::string text = HelpOrVersion(options, HelpText()); !text.empty()) {
    return WriteOut(text), kOk;
  }
  if (options.list_devices) {
    const std::vector<dsv4::Device> devices = dsv4::ListDevices();
    return WriteOut(options.json ? DevicesJson(devices) + "\n" : DeviceTable(devices)), kOk;
  }
  if (options.list_models) return ListModels(options), kOk;
  if (options.model.empty())
    throw Failure{kUsageError,
                  "no model: name a folder, a GGUF file or OWNER/NAME with -m; --list-models lists "
                  "those in the hub's cache"};
  options.model = FindModel(options.model);
  CheckTogether(options);
  std::optional<dsv4::Log> log;
  if (options.verbose)
    log.emplace([](dsv4_log_level, const std::string& line) { WriteErr(line + "\n"); });
  if (options.inspect || options.plan) return Describe(options), kOk;
  Screen screen(options);
  JsonLines lines;
  TurnOutput* output = &screen;
  if (options.json) output = &lines;
  const std::optional<std::string> prompt = OneShotPrompt(options);
  if (!options.raw) return Talk(options, prompt, &screen, output);
  if (!prompt) throw Failure{kUsageError, "--raw needs a prompt: give one with -p, -f or piped in"};
  return ContinueText(options, *prompt, &screen, output);
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
    // Standard output is closed.
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
  } catch (...) {
    return chat::Report(chat::CurrentFailure(), json);
  }
}
