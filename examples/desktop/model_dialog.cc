// SPDX-License-Identifier: Apache-2.0
#include "examples/desktop/model_dialog.h"

#include <QDialogButtonBox>
#include <QFileDialog>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLocale>
#include <limits>

namespace desktop {
namespace {

QString Bytes(uint64_t bytes) {
  return QLocale::c().formattedDataSize(static_cast<qint64>(bytes), 1, QLocale::DataSizeSIFormat);
}

}  // namespace

ModelDialog::ModelDialog(Worker* worker, QWidget* parent) : QDialog(parent), worker_(worker) {
  setWindowTitle("Open a model");
  auto* form = new QFormLayout(this);
  const auto name = [](QWidget* widget, const QString& label, const char* object) {
    widget->setObjectName(object);
    widget->setAccessibleName(QString(label).remove('&'));
  };
  const auto add = [&](auto* widget, const QString& label, const char* object) {
    name(widget, label, object);
    form->addRow(label, widget);
    return widget;
  };
  folder_ = new QLineEdit;
  name(folder_, "Folder", "folder");
  folder_->setMinimumWidth(400);
  auto* browse = new QPushButton("&Browse\u2026");
  auto* row = new QHBoxLayout;
  row->addWidget(folder_);
  row->addWidget(browse);
  auto* label = new QLabel("&Folder");
  label->setBuddy(folder_);
  form->addRow(label, row);
  backend_ = add(new QComboBox, "Bac&kend", "backend");
  backend_->addItem("automatic", DSV4_BACKEND_AUTO);
  backend_->addItem("CPU", DSV4_BACKEND_CPU);
  backend_->addItem("CUDA", DSV4_BACKEND_CUDA);
  backend_->addItem("reference (slow)", DSV4_BACKEND_REFERENCE);
  devices_ = add(new QListWidget, "&GPUs", "devices");
  devices_->setToolTip("None checked: chosen by the library");
  devices_->setMaximumHeight(5 * devices_->fontMetrics().lineSpacing());
  const auto add_tokens = [&](const QString& label, const char* object, const char* zero) {
    QSpinBox* box = add(new QSpinBox, label, object);
    box->setRange(0, std::numeric_limits<int>::max());
    box->setSingleStep(1024);
    box->setSpecialValueText(zero);
    box->setSuffix(" tokens");
    return box;
  };
  context_ = add_tokens("&Context", "context", "the model's limit");
  cache_ = add_tokens("C&ache of all conversations", "cache", "one context");
  drafts_ = add(new QSpinBox, "Draft &tokens at most", "max_drafts");
  drafts_->setRange(-1, 7);
  drafts_->setSpecialValueText("the model's drafter");
  drafts_->setValue(-1);
  plan_ = add(new QLabel, "Memory", "plan");
  plan_->setWordWrap(true);
  plan_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  plan_->setMinimumHeight(5 * plan_->fontMetrics().lineSpacing());
  plan_->setAlignment(Qt::AlignTop);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Open | QDialogButtonBox::Cancel);
  open_ = buttons->button(QDialogButtonBox::Open);
  open_->setEnabled(false);
  form->addRow(buttons);

  timer_.setSingleShot(true);
  timer_.setInterval(200);
  const auto changed = [this] {
    open_->setEnabled(false);
    timer_.start();
  };
  connect(folder_, &QLineEdit::textChanged, this, changed);
  connect(devices_, &QListWidget::itemChanged, this, changed);
  connect(backend_, &QComboBox::currentIndexChanged, this, [this, changed] {
    const int backend = backend_->currentData().toInt();
    devices_->setEnabled(backend == DSV4_BACKEND_AUTO || backend == DSV4_BACKEND_CUDA);
    changed();
  });
  for (QSpinBox* box : {context_, cache_, drafts_})
    connect(box, &QSpinBox::valueChanged, this, changed);
  connect(&timer_, &QTimer::timeout, this, [this] { worker_->Plan(model()); });
  connect(worker_, &Worker::Planned, this, &ModelDialog::ShowPlan);
  connect(worker_, &Worker::DevicesListed, this, &ModelDialog::ShowDevices);
  worker_->ListDevices();
  connect(browse, &QPushButton::clicked, this, &ModelDialog::Browse);
  connect(buttons, &QDialogButtonBox::accepted, this, &QDialog::accept);
  connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::reject);
}

void ModelDialog::SetFolder(const QString& folder) { folder_->setText(folder); }

Model ModelDialog::model() const {
  Model model;
  model.folder = folder_->text().toStdString();
  model.options.backend = backend_->currentData().toInt();
  for (int row = 0; devices_->isEnabled() && row < devices_->count(); ++row) {
    const QListWidgetItem* item = devices_->item(row);
    if (item->checkState() == Qt::Checked)
      model.options.devices.push_back(item->data(Qt::UserRole).toInt());
  }
  model.options.context_tokens = context_->value();
  model.options.cache_tokens = cache_->value();
  // In the library, 0 is the default and -1 none.
  const int drafts = drafts_->value();
  model.options.max_draft_tokens = drafts == -1 ? 0 : drafts == 0 ? -1 : drafts;
  return model;
}

void ModelDialog::Browse() {
  const QString folder = QFileDialog::getExistingDirectory(this, "Model folder", folder_->text());
  if (!folder.isEmpty()) folder_->setText(folder);
}

void ModelDialog::ShowDevices(const std::vector<dsv4::Device>& devices) {
  const QSignalBlocker blocked(devices_);  // nothing is checked yet
  devices_->clear();
  for (const dsv4::Device& device : devices) {
    if (device.backend != DSV4_BACKEND_CUDA) continue;
    QString text = device.index < 0 ? QString() : QString("%1: ").arg(device.index);
    text += QString::fromStdString(device.usable ? device.name : device.reason);
    if (device.usable && device.total_bytes > 0)
      text += QString(", %1 of %2 free").arg(Bytes(device.free_bytes), Bytes(device.total_bytes));
    auto* item = new QListWidgetItem(text, devices_);
    item->setToolTip(text);
    item->setData(Qt::UserRole, device.index);
    if (device.usable) {
      item->setCheckState(Qt::Unchecked);
    } else {
      item->setFlags(Qt::NoItemFlags);
    }
  }
}

void ModelDialog::ShowPlan(const dsv4::EngineInfo& info, const QString& error,
                           const QString& expected) {
  if (timer_.isActive()) return;  // a plan of an earlier choice
  open_->setEnabled(error.isEmpty());
  if (!error.isEmpty()) {
    plan_->setText(error);
    return;
  }
  QString text =
      QString("Weights %1, cache %2, workspace %3: %4 in all.\n")
          .arg(Bytes(info.weight_bytes), Bytes(info.cache_bytes), Bytes(info.workspace_bytes),
               Bytes(info.weight_bytes + info.cache_bytes + info.workspace_bytes));
  if (info.device_count > 1)
    text += QString("%1 on the fullest of %2 devices.\n")
                .arg(Bytes(info.device_weight_bytes + info.device_cache_bytes +
                           info.device_workspace_bytes))
                .arg(info.device_count);
  text += QString("Context %1 tokens, cache %2 tokens, %3 conversations at a time.")
              .arg(info.context_tokens)
              .arg(info.cache_tokens)
              .arg(info.max_sessions);
  plan_->setText(expected + "\n" + text);
}

}  // namespace desktop
