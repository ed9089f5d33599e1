// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/record.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>

#include "examples/console/json_text.h"
#include "examples/console/terminal.h"

namespace bench {
namespace {

std::string RealText(double value) {
  char text[32];
  // The fewest digits that give the same number again.
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end);
}

std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + "\"";
}

std::string CsvLine(const Record& record, bool names) {
  std::string line;
  for (const Record::Field& field : record.fields()) {
    if (!field.is_list) line += CsvCell(names ? field.name : field.value) + ",";
  }
  if (!line.empty()) line.back() = '\n';
  return line;
}

std::string JsonOf(const Record& record) {
  chat::JsonObject object;
  for (const Record::Field& field : record.fields()) {
    if (field.missing) {
      object.Json(field.name, "null");
    } else if (field.is_text) {
      object.String(field.name, field.value);
    } else {
      object.Json(field.name, field.value);
    }
  }
  return object.text();
}

// A column of the table for people: a field, and one that follows a plus-minus sign.
struct Column {
  const char* title;
  const char* field;
  const char* deviation = nullptr;
  size_t max_characters = 40;
  int digits = 2;  // of numbers that are not whole
};

constexpr Column kSubjectColumns[] = {
    {"model", "model"},
    {"weights", "weight_format"},
    {"cache", "cache_format"},
    {"device", "device"},
    {"backend", "backend"},
    {"threads", "n_threads"},
    {"temp", "temperature"},
    {"draft", "draft_tokens"},
    {"accepted", "acceptance_rate"},
    {"depth", "n_depth"},
    {"test", "test"},
};

constexpr Column kSpeedColumns[] = {{"t/s", "avg_ts", "stddev_ts"}, {"sample us", "sample_us"}};

constexpr Column kServingColumns[] = {
    {"sessions", "max_concurrency"}, {"output t/s", "output_throughput"},
    {"ttft ms", "mean_ttft_ms"},     {"p99", "p99_ttft_ms"},
    {"tpot ms", "mean_tpot_ms"},     {"p99", "p99_tpot_ms"},
    {"itl ms", "mean_itl_ms"},       {"p99", "p99_itl_ms"},
    {"e2el ms", "mean_e2el_ms"},     {"p99", "p99_e2el_ms"},
};

constexpr Column kBuildColumns[] = {{"commit", "build_commit", nullptr, 12},
                                    {"checkpoint", "checkpoint_fingerprint", nullptr, 12}};

std::string Rounded(const Record::Field* field, int digits) {
  if (field == nullptr || field->missing) return "-";
  if (field->is_text || field->value.find_first_of(".e") == std::string::npos) return field->value;
  double number = 0;
  std::from_chars(field->value.data(), field->value.data() + field->value.size(), number);
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string MarkdownCell(const Record& record, const Column& column) {
  const Record::Field* field = record.Find(column.field);
  std::string text = Rounded(field, column.digits);
  if (field != nullptr && field->is_text) {
    text = text.substr(0, column.max_characters);
    // A cell ends at a bar or a line break.
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '|' || c == '\n' || c == '\r'; }, ' ');
  }
  if (column.deviation != nullptr)
    text += " ± " + Rounded(record.Find(column.deviation), column.digits);
  return text;
}

// `measured`: the columns of what was measured.
std::string MarkdownRow(const Record& record, std::span<const Column> measured, bool head) {
  std::string titles = "|", rule = "|", cells = "|";
  for (const std::span<const Column> columns : {std::span<const Column>(kSubjectColumns), measured,
                                                std::span<const Column>(kBuildColumns)}) {
    for (const Column& column : columns) {
      titles += std::string(" ") + column.title + " |";
      const Record::Field* field = record.Find(column.field);
      rule += field != nullptr && field->is_text ? " --- |" : " ---: |";
      cells += " " + MarkdownCell(record, column) + " |";
    }
  }
  return (head ? titles + "\n" + rule + "\n" : "") + cells + "\n";
}

}  // namespace

void Record::Text(std::string_view name, std::string_view value) {
  fields_.push_back({std::string(name), std::string(value), true});
}

void Record::Integer(std::string_view name, int64_t value) {
  fields_.push_back({std::string(name), std::to_string(value)});
}

void Record::Real(std::string_view name, double value) {
  if (!std::isfinite(value)) return Missing(name);
  fields_.push_back({std::string(name), RealText(value)});
}

void Record::Missing(std::string_view name) {
  fields_.push_back({std::string(name), "", false, false, true});
}

void Record::List(std::string_view name, std::string_view json) {
  fields_.push_back({std::string(name), std::string(json), false, true});
}

void Record::List(std::string_view name, const std::vector<double>& values) {
  List(name, JsonList(values));
}

const Record::Field* Record::Find(std::string_view name) const {
  for (const Field& field : fields_) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

void AddTo(Record* record, const GpuSummary& gpus) {
  const bool known = gpus.samples > 0;
  const auto add = [&](const char* name, double value) {
    known ? record->Real(name, value) : record->Missing(name);
  };
  add("gpu_sm_mhz", gpus.sm_mhz);
  add("gpu_least_sm_mhz", gpus.least_sm_mhz);
  add("gpu_memory_mhz", gpus.memory_mhz);
  add("gpu_watts", gpus.watts);
  add("gpu_most_watts", gpus.most_watts);
  known ? record->Text("gpu_throttled", gpus.throttled) : record->Missing("gpu_throttled");
}

std::string JsonList(const std::vector<double>& values) {
  std::string json = "[";
  for (const double value : values) {
    if (json.size() > 1) json += ", ";
    json += RealText(value);
  }
  return json + "]";
}

void Output::Write(const Record& record) {
  const bool first = records_++ == 0;
  switch (format_) {
    case Format::kMarkdown:
      chat::WriteOut(serving_ ? MarkdownRow(record, kServingColumns, first)
                              : MarkdownRow(record, kSpeedColumns, first));
      break;
    case Format::kCsv:
      chat::WriteOut((first ? CsvLine(record, true) : "") + CsvLine(record, false));
      break;
    case Format::kJson:
      chat::WriteOut((first ? "[\n  " : ",\n  ") + JsonOf(record));
      break;
    case Format::kJsonLines:
      chat::WriteOut(JsonOf(record) + "\n");
      break;
  }
}

void Output::End() {
  if (format_ == Format::kJson) chat::WriteOut(records_ == 0 ? "[]\n" : "\n]\n");
}

}  // namespace bench
