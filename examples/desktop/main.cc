// SPDX-License-Identifier: Apache-2.0
// dsv4-desktop: a window to talk with a model. docs/desktop.md describes it.
#include <QApplication>
#include <QCommandLineParser>

#include "examples/desktop/main_window.h"

int main(int argc, char** argv) {
  QApplication application(argc, argv);
  QApplication::setApplicationName("dsv4-desktop");
  QApplication::setApplicationVersion(dsv4_get_version());
  QCommandLineParser options;
  options.setApplicationDescription("A window to talk with a model.");
  options.addHelpOption();
  options.addVersionOption();
  options.addPositionalArgument("MODEL_DIR", "The model folder to open.", "[MODEL_DIR]");
  options.process(application);

  desktop::MainWindow window;
  window.show();
  if (!options.positionalArguments().isEmpty())
    window.Open({options.positionalArguments().first().toStdString(), {}});
  return QApplication::exec();
}
