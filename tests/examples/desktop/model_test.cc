// SPDX-License-Identifier: Apache-2.0
// Models: planned, opened, cancelled, missing, and lost with their device.
#include <QAbstractButton>
#include <QAbstractSpinBox>
#include <QDialogButtonBox>
#include <QListWidget>
#include <QThread>
#include <atomic>

#include "tests/examples/desktop/window.h"
#include "tests/support/catch.h"

namespace desktop {
namespace {

const char kNoFolder[] = "/there/is/no/such/folder";

// Opens as slowly as a large model: until it is cancelled.
Calls EndlessOpen() {
  Calls calls;
  calls.open = [](const std::string&, const dsv4::EngineOptions& options) -> dsv4::Engine {
    while (options.progress({DSV4_PROGRESS_LOAD, 30, 100, DSV4_UNIT_BYTES})) QThread::msleep(5);
    throw dsv4::Error(DSV4_ERR_CANCELLED, "opening was cancelled");
  };
  return calls;
}

// A device that can be lost.
struct Device {
  std::atomic<int> steps_left{-1};  // before it is lost; below 0: it works
  std::atomic<bool> stays_lost{false};

  LibraryCalls calls() {
    LibraryCalls calls;
    calls.loses_device = [this] {
      if (steps_left < 0 || steps_left-- > 0) return false;
      lost = true;
      if (stays) steps_left = 0;
      return true;
    };
    calls.stays_lost = [this] { return stays_lost.load(); };
    return calls;
  }

  std::atomic<bool> lost{false};
  std::atomic<bool> stays{false};  // is lost again in each further step
};

// Two GPUs that can be used, and one that cannot.
Calls WithThreeGpus() {
  Calls calls;
  calls.list_devices = [] {
    std::vector<dsv4::Device> devices(4);
    for (int i = 0; i < 3; ++i) {
      devices[i].backend = DSV4_BACKEND_CUDA;
      devices[i].index = i;
      devices[i].usable = i < 2;
      devices[i].name = "GPU " + std::to_string(i);
      devices[i].total_bytes = 32'000'000'000;
      devices[i].free_bytes = 30'000'000'000;
    }
    devices[2].reason = "cuda:2 is too old";
    devices[3].usable = true;
    return devices;
  };
  return calls;
}

TEST_CASE("The dialog plans the memory, opens, and names what is wrong") {
  Window window(WithThreeGpus());
  window.Trigger("open");
  auto& dialog = *window.window->findChild<ModelDialog*>();
  auto& plan = window.Child<QLabel>("plan");
  QPushButton* open = dialog.findChild<QDialogButtonBox*>()->button(QDialogButtonBox::Open);
  CHECK_FALSE(open->isEnabled());
  window.Child<QLineEdit>("folder").setText(kNoFolder);
  REQUIRE(Wait([&] { return plan.text().contains(kNoFolder); }));
  CHECK_FALSE(open->isEnabled());

  window.Child<QLineEdit>("folder").setText(QString::fromStdString(BundledModel().folder));
  window.Child<QSpinBox>("context").setValue(1000);
  window.Child<QSpinBox>("cache").setValue(4096);
  REQUIRE(Wait([&] { return open->isEnabled(); }));
  Model model = BundledModel();
  model.options.context_tokens = 1000;
  model.options.cache_tokens = 4096;
  const dsv4::EngineInfo info = dsv4::Plan(model.folder, model.options);
  CHECK(plan.text().contains("Context 1000 tokens, cache 4096 tokens"));
  CHECK(plan.text().contains("host memory"));
  CHECK(plan.text().contains("tokens a second (predicted)"));
  CHECK(plan.text().contains("Weights " +
                             QLocale::c().formattedDataSize(static_cast<qint64>(info.weight_bytes),
                                                            1, QLocale::DataSizeSIFormat)));
  window.Child<QSpinBox>("max_drafts").setValue(2);
  auto& devices = window.Child<QListWidget>("devices");
  REQUIRE(devices.count() == 3);
  CHECK(devices.item(1)->text() == "1: GPU 1, 30.0 GB of 32.0 GB free");
  CHECK(devices.item(2)->text() == "2: cuda:2 is too old");
  CHECK((devices.item(2)->flags() & Qt::ItemIsUserCheckable) == 0);
  for (const int row : {0, 1}) devices.item(row)->setCheckState(Qt::Checked);
  CHECK_FALSE(open->isEnabled());
  REQUIRE(Wait([&] { return open->isEnabled(); }));
  CHECK(plan.text().contains("on the fullest of 2 devices"));
  // The list is of GPUs.
  auto& backend = window.Child<QComboBox>("backend");
  backend.setCurrentIndex(backend.findData(DSV4_BACKEND_CPU));
  REQUIRE(Wait([&] { return open->isEnabled(); }));
  CHECK_FALSE(devices.isEnabled());
  CHECK_FALSE(plan.text().contains("devices"));
  backend.setCurrentIndex(backend.findData(DSV4_BACKEND_AUTO));
  REQUIRE(Wait([&] { return open->isEnabled(); }));
  CHECK(plan.text().contains("on the fullest of 2 devices"));
  open->click();
  CHECK_FALSE(dialog.isVisible());
  REQUIRE(Wait([&] { return !window.Child<QPushButton>("cancel_open").isVisible(); }));
  CHECK(window.Child<QSpinBox>("drafts").maximum() == 2);
  window.Ask("What is the capital of France?");
  CHECK(window.text().contains("Paris"));
  CHECK(window.statistics().contains(" of 1000."));
}

TEST_CASE("A folder that does not exist is named") {
  Window window;
  window.window->Open({kNoFolder, {}});
  REQUIRE(Wait([&] { return window.notice().contains(kNoFolder); }));
  CHECK(window.notice().contains("NOT_FOUND"));
  window.Child<QPlainTextEdit>("composer").setPlainText("Hello");
  CHECK_FALSE(window.Child<QAction>("send").isEnabled());
  window.OpenBundled();
}

TEST_CASE("Opening shows its progress and can be cancelled") {
  Window window(EndlessOpen());
  window.window->Open(BundledModel());
  auto& progress = window.Child<QProgressBar>("progress");
  REQUIRE(Wait([&] { return progress.value() == 30; }));
  CHECK(progress.isVisible());
  CHECK(progress.text().contains("30 %"));
  REQUIRE(Wait([&] { return progress.text().contains("/s") && progress.text().contains("left"); }));
  window.Child<QPushButton>("cancel_open").click();
  REQUIRE(Wait([&] { return window.notice().contains("opening was cancelled"); }));
  CHECK_FALSE(progress.isVisible());
}

TEST_CASE("The window closes while a model opens") {
  Window window(EndlessOpen());
  window.window->Open(BundledModel());
  REQUIRE(Wait([&] { return window.Child<QProgressBar>("progress").value() == 30; }));
  window.window->close();
}

TEST_CASE("A lost device: the model is loaded again, and the answer continues") {
  Device device;
  const WithLibraryCalls with(device.calls());
  Window window;
  window.OpenBundled();
  window.Ask("I live in Brussels.");
  device.steps_left = 3;
  window.Ask("Where do I live?");
  CHECK(device.lost);
  CHECK(window.text().contains("You live in Brussels."));
  CHECK(window.text().count("You live") == 1);
  CHECK(window.notice().contains("The device was lost: cuda:0: gone"));
  CHECK(window.notice().contains("(DEVICE_LOST)"));
  CHECK(window.notice().contains("was loaded again"));
  window.Ask("What is the capital of France?");
  CHECK(window.text().contains("Paris"));
}

TEST_CASE("A device that stays lost: the conversation is kept for another one") {
  Device device;
  const WithLibraryCalls with(device.calls());
  Window window;
  window.OpenBundled();
  window.Ask("I live in Brussels.");
  device.steps_left = 3;
  device.stays_lost = true;
  window.Ask("Where do I live?");
  CHECK(window.notice().contains("could not be loaded again: cuda:0: still gone"));
  CHECK_FALSE(window.text().contains("You live"));
  CHECK_FALSE(window.Child<QAction>("regenerate").isEnabled());
  window.OpenBundled();
  window.Trigger("regenerate");
  REQUIRE(Wait([&] { return !window.answering(); }));
  CHECK(window.text().contains("You live in Brussels."));
}

TEST_CASE("An answer that loses the device again ends with the error and keeps its text") {
  Device device;
  device.stays = true;
  const WithLibraryCalls with(device.calls());
  Window window;
  window.OpenBundled();
  device.steps_left = 3;
  window.Ask("Where do I live?");
  CHECK(window.notice().contains("cuda:0: gone"));
  CHECK(window.text().contains("Model"));
}

TEST_CASE("Whatever takes the keyboard has a name for screen readers") {
  Window window;
  window.Trigger("open");
  for (const QWidget* widget : window.window->findChildren<QWidget*>()) {
    if (!(widget->focusPolicy() & Qt::TabFocus)) continue;
    if (qobject_cast<QAbstractSpinBox*>(widget->parentWidget()) != nullptr) continue;
    const auto* button = qobject_cast<const QAbstractButton*>(widget);
    INFO(widget->metaObject()->className() << " " << widget->objectName().toStdString());
    CHECK(
        (!widget->accessibleName().isEmpty() || (button != nullptr && !button->text().isEmpty())));
  }
}

}  // namespace
}  // namespace desktop
