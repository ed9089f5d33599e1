// SPDX-License-Identifier: Apache-2.0
// The thread of the engine: it lists devices, plans and opens, while the library's queue answers
// conversations on a thread of its own. The window posts commands; signals bring back text.
#pragma once

#include <dsv4/dsv4.hpp>

#include <QJsonArray>
#include <QJsonObject>
#include <QObject>
#include <QString>
#include <QThread>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace desktop {

// A model folder, and how it is opened. The progress callback is the worker's.
struct Model {
  std::string folder;
  dsv4::EngineOptions options;
};

// A request for the assistant's next message.
struct Turn {
  int chat = 0;
  int parent = 0;  // the conversation that a new one branches from; 0: none
  QJsonArray messages;
  dsv4_thinking_mode thinking = DSV4_THINKING_OFF;
  dsv4::Sampling sampling;
};

// The library's calls that depend on the machine's devices. Tests replace them.
struct Calls {
  std::function<std::vector<dsv4::Device>()> list_devices = dsv4::ListDevices;
  std::function<dsv4::Engine(const std::string&, const dsv4::EngineOptions&)> open =
      [](const std::string& folder, const dsv4::EngineOptions& options) {
        return dsv4::Engine(folder, options);
      };
};

// All functions may be called from any thread and return at once. Signals are emitted on the
// worker's thread or the queue's.
class Worker : public QObject {
  Q_OBJECT

 public:
  explicit Worker(Calls calls = {});
  // Cancels what is computed, and waits for the thread: on the CPU at most one layer of a pass.
  ~Worker() override;

  // Lists the machine's devices. Ends with DevicesListed.
  void ListDevices();
  // Plans the memory of an engine. Ends with Planned.
  void Plan(Model model);
  // Closes the engine that is open, and opens another one. Ends with Opened or OpenFailed.
  void Open(Model model);
  // Cancels an Open that is running.
  void CancelOpen() { cancel_open_ = true; }
  // Answers the last message of a conversation. Ends with Ended.
  void Answer(Turn turn);
  // Ends the answer of a conversation early. The answer keeps its text.
  void Stop(int chat);

 signals:
  void DevicesListed(std::vector<dsv4::Device> devices);
  // `error`: the library's message; empty if `info` is valid. `expected`: where the weights would
  // lie, and how fast the model would be.
  void Planned(dsv4::EngineInfo info, QString error, QString expected);
  // `text`: the rate and the time that is left, too.
  void Progress(int percent, QString text);
  void Opened(dsv4::EngineInfo info, dsv4::Sampling defaults);
  void OpenFailed(QString error);
  // An answer begins.
  void Started(int chat);
  void Streamed(int chat, dsv4::Event event);
  // `reply`: the assistant's message; empty if it has none. `error`: empty if there was none.
  void Ended(int chat, QJsonObject reply, dsv4::SessionStats stats, QString error);
  // The device was lost. The model is being loaded again, which ends with Opened or OpenFailed.
  void DeviceLost(QString error);

 private:
  // Runs `command` on the worker's thread, unless the worker is being destroyed.
  void Post(std::function<void()> command);
  void OpenNow(const Model& model);
  void AnswerNow(const Turn& turn);
  // An event of a conversation's answer, on the queue's thread.
  void Deliver(int chat, const dsv4::QueueEvent& event);
  // Loads the model again after a lost device, on the queue's thread. Sessions keep their tokens.
  // Closes the engine if that fails.
  void Recover(const dsv4::Error& error);
  dsv4::Progress LoadProgress();

  const Calls calls_;
  std::atomic<bool> closing_{false}, cancel_open_{false};
  std::atomic<bool> opening_{false};  // another engine, in place of the one that is open
  std::atomic<bool> gone_{false};     // the engine, with its device
  std::optional<dsv4::Engine> engine_;
  std::optional<dsv4::Queue> queue_;  // of the engine
  std::map<int, uint64_t> tickets_;   // the last one of each conversation
  QThread thread_;
};

}  // namespace desktop
