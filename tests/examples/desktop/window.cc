// SPDX-License-Identifier: Apache-2.0
#include "tests/examples/desktop/window.h"

#include <QTest>
#include <string>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/wrapped_engine_step.h"

namespace desktop {
namespace {

LibraryCalls library_calls;

// An error object of the library, whose message is "cuda:0: MESSAGE".
dsv4_error* NewError(const char* message) {
  dsv4_engine* none = nullptr;
  dsv4_error* error = nullptr;
  dsv4_engine_open((std::string("cuda:0: ") + message).c_str(), nullptr, &none, &error);
  return error;
}

}  // namespace

}  // namespace desktop

dsv4_status dsv4::test::WrappedEngineStep(const EngineStep& step) {
  return desktop::library_calls.loses_device() ? step.Lose([] { return desktop::NewError("gone"); })
                                               : step.Real();
}

namespace desktop {

extern "C" {

dsv4_status __real_dsv4_engine_resume(dsv4_engine* engine, dsv4_progress_fn progress,
                                      void* progress_user, dsv4_error** error);
dsv4_status __wrap_dsv4_engine_resume(dsv4_engine* engine, dsv4_progress_fn progress,
                                      void* progress_user, dsv4_error** error) {
  if (library_calls.stays_lost()) {
    *error = NewError("still gone");
    return DSV4_ERR_DEVICE_LOST;
  }
  const dsv4_status status = dsv4_engine_suspend(engine, nullptr, error);
  if (status != DSV4_OK) return status;
  return __real_dsv4_engine_resume(engine, progress, progress_user, error);
}

}  // extern "C"

WithLibraryCalls::WithLibraryCalls(LibraryCalls calls) { library_calls = std::move(calls); }
WithLibraryCalls::~WithLibraryCalls() { library_calls = {}; }

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
