// SPDX-License-Identifier: Apache-2.0
// A window of dsv4-desktop, used by keyboard and mouse as a user would.
#pragma once

#include <QApplication>
#include <functional>
#include <memory>

#include "examples/desktop/main_window.h"

namespace desktop {

// What calls of the library do in place of the library, which are linked to the test (--wrap). Both
// run on the queue's thread.
struct LibraryCalls {
  // Called before a step. True: the device is lost in it.
  std::function<bool()> loses_device = [] { return false; };
  // Called in place of a resume. True: the device stays lost.
  std::function<bool()> stays_lost = [] { return false; };
};

// Uses them while it exists.
class WithLibraryCalls {
 public:
  explicit WithLibraryCalls(LibraryCalls calls);
  ~WithLibraryCalls();
};

// Processes events until `done`. False after 30 seconds.
bool Wait(const std::function<bool()>& done);

class Window {
 public:
  explicit Window(Calls calls = {});

  // The bundled model, and waits until it is open.
  void OpenBundled();
  // Types a message and sends it with Return.
  void Type(const QString& text);
  // The same, and waits for the answer.
  void Ask(const QString& text);
  void Trigger(const char* action);
  // A link of the transcript, as in "edit:0".
  void Click(const char* link);
  void Select(int row);

  template <class T>
  T& Child(const char* name) {
    T* child = window->findChild<T*>(name);
    if (child == nullptr) throw std::runtime_error(std::string("there is no ") + name);
    return *child;
  }
  QString text() { return Child<QTextBrowser>("transcript").toPlainText(); }
  QString notice() { return Child<QLabel>("notice").text(); }
  QString statistics() { return Child<QLabel>("statistics").text(); }
  bool answering() { return Child<QAction>("stop").isEnabled(); }
  int chats() { return Child<QListWidget>("chats").count(); }

 private:
  int argc_ = 1;
  char name_[5] = "test";
  char* argv_[2] = {name_, nullptr};
  QApplication application_{argc_, argv_};

 public:
  std::unique_ptr<MainWindow> window;
};

Model BundledModel();

}  // namespace desktop
