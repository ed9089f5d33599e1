// SPDX-License-Identifier: Apache-2.0
#include "tests/examples/desktop/window.h"

#include <QTest>

#include "tests/support/catch.h"

namespace desktop {

bool Wait(const std::function<bool()>& done) { return QTest::qWaitFor(done, 30000); }

Model BundledModel() { return {DSV4_SOURCE_DIR "/models/dsv4-tiny", {}}; }

Window::Window(Calls calls) : window(std::make_unique<MainWindow>(std::move(calls))) {
  window->show();
}

void Window::OpenBundled() {
  window->Open(BundledModel());
  REQUIRE(Wait([&] { return !Child<QPushButton>("cancel_open").isVisible(); }));
  REQUIRE(notice().toStdString() == "");
  Child<QDoubleSpinBox>("temperature").setValue(0);
}

void Window::Type(const QString& text) {
  auto& composer = Child<QPlainTextEdit>("composer");
  composer.selectAll();
  QTest::keyClicks(&composer, text);
  QTest::keyClick(&composer, Qt::Key_Return);
}

void Window::Ask(const QString& text) {
  Type(text);
  REQUIRE(answering());
  REQUIRE(Wait([&] { return !answering(); }));
}

void Window::Trigger(const char* action) {
  REQUIRE(Child<QAction>(action).isEnabled());
  Child<QAction>(action).trigger();
}

void Window::Click(const char* link) {
  auto& transcript = Child<QTextBrowser>("transcript");
  REQUIRE(transcript.toHtml().contains(link));
  emit transcript.anchorClicked(QUrl(link));
}

void Window::Select(int row) { Child<QListWidget>("chats").setCurrentRow(row); }

}  // namespace desktop
