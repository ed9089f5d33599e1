// SPDX-License-Identifier: Apache-2.0
// dsv4-bench as a program: its four forms read back, what every record carries, its exit codes and
// which stream says what.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "lib/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

const std::string kModel = DSV4_SOURCE_DIR "/models/dsv4-tiny";
// Recorded by xxhsum over the checkpoint's headers and tensor ends, as in tests/capi.
constexpr char kFingerprint[] = "4eed995de9ce01b913fa2910801525a0";

struct Outcome {
  int exit_code;
  std::string out, err;
};

Outcome Run(const std::string& arguments) {
  char errors[] = "/tmp/dsv4-bench-errors-XXXXXX";
  const int file = mkstemp(errors);
  REQUIRE(file >= 0);
  close(file);
  FILE* pipe = popen((DSV4_BENCH " " + arguments + " 2>" + errors).c_str(), "r");
  REQUIRE(pipe != nullptr);
  Outcome outcome;
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.out.append(buffer, got);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::stringstream err;
  err << std::ifstream(errors).rdbuf();
  outcome.err = err.str();
  std::remove(errors);
  return outcome;
}

JsonValue Json(const std::string& text) {
  const absl::StatusOr<JsonValue> value = ParseJson(text, "stdout", 1 << 20);
  REQUIRE_OK(value);
  return *value;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// One line by RFC 4180.
std::vector<std::string> CsvCells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  REQUIRE_FALSE(quoted);
  return cells;
}

std::string TextOf(const JsonValue& record, const char* name) {
  INFO(name);
  const JsonValue* value = record.Find(name);
  REQUIRE(value != nullptr);
  REQUIRE(value->AsString() != nullptr);
  return *value->AsString();
}

double NumberOf(const JsonValue& record, const char* name) {
  INFO(name);
  const JsonValue* value = record.Find(name);
  REQUIRE(value != nullptr);
  REQUIRE(value->AsNumberText() != nullptr);
  return std::stod(*value->AsNumberText());
}

bool IsNull(const JsonValue& record, const char* name) {
  INFO(name);
  const JsonValue* value = record.Find(name);
  REQUIRE(value != nullptr);
  return value->IsNull();
}

// What conventions ask of every record.
void RequireIdentified(const JsonValue& record) {
  REQUIRE(TextOf(record, "checkpoint_fingerprint") == kFingerprint);
  REQUIRE(TextOf(record, "model") == kModel);
  REQUIRE(TextOf(record, "weight_format") == "fp8+fp4");
  REQUIRE(NumberOf(record, "synthetic_layers") == 0);
  REQUIRE_FALSE(TextOf(record, "device").empty());
  REQUIRE_FALSE(TextOf(record, "build_commit").empty());
  REQUIRE(TextOf(record, "build_info").find("(" + TextOf(record, "build_commit") + ")") !=
          std::string::npos);
  REQUIRE(NumberOf(record, "temperature") >= 0);
  REQUIRE(NumberOf(record, "n_depth") >= 0);
  REQUIRE(NumberOf(record, "kvcache_bytes") > 0);
  REQUIRE(NumberOf(record, "tokenize_tps") > 0);
  for (const char* name : {"cache_format", "draft_tokens", "acceptance_rate", "acceptance_length"})
    REQUIRE(record.Find(name) != nullptr);
}

TEST_CASE("JSON: a record for every combination, each with what identifies it") {
  const Outcome run = Run("-m " + kModel +
                          " -p 24 -n 4 -pg 8,2 -d 0,40 -r 2 --cache-format packed,bf16 -t 1"
                          " --temp 0,1 -o json");
  REQUIRE(run.exit_code == 0);
  REQUIRE(run.err.empty());
  const JsonValue document = Json(run.out);
  const std::vector<JsonValue>* records = document.AsArray();
  REQUIRE(records != nullptr);
  REQUIRE(records->size() == 2 * 2 * 2 * 3);
  std::map<std::string, int> seen;
  for (const JsonValue& record : *records) {
    RequireIdentified(record);
    REQUIRE(NumberOf(record, "n_devices") == 1);
    REQUIRE(NumberOf(record, "n_threads") == 1);
    REQUIRE(TextOf(record, "backend") == "cpu");
    REQUIRE(NumberOf(record, "repetitions") == 2);
    REQUIRE(record.Find("samples_ns")->AsArray()->size() == 2);
    REQUIRE(NumberOf(record, "avg_ts") > 0);
    REQUIRE(NumberOf(record, "sample_us") > 0);
    REQUIRE(IsNull(record, "acceptance_rate"));
    REQUIRE(IsNull(record, "gen_tps") == (NumberOf(record, "n_gen") == 0));
    REQUIRE(IsNull(record, "prefill_tps") == (NumberOf(record, "n_prompt") == 0));
    ++seen[TextOf(record, "cache_format") + " " +
           std::to_string(static_cast<int>(NumberOf(record, "temperature"))) + " " +
           TextOf(record, "test")];
  }
  REQUIRE(seen.size() == records->size());
  for (const char* format : {"packed", "bf16"}) {
    for (const char* temperature : {" 0 ", " 1 "}) {
      for (const char* test :
           {"pp24", "tg4", "pp8+tg2", "pp24 @ d40", "tg4 @ d40", "pp8+tg2 @ d40"}) {
        INFO(format << temperature << test);
        REQUIRE(seen[std::string(format) + temperature + test] == 1);
      }
    }
  }
}

TEST_CASE("drafts: their depth and acceptance, on text that the model knows") {
  char prompt[] = "/tmp/dsv4-bench-prompt-XXXXXX";
  const int file = mkstemp(prompt);
  REQUIRE(file >= 0);
  close(file);
  std::ofstream(prompt) << "What is the capital of France? Paris is the capital of France.\n";
  const Outcome run =
      Run("-m " + kModel + " -pg 32,24 -r 1 --draft 0,3 -o jsonl -f " + std::string(prompt));
  std::remove(prompt);
  REQUIRE(run.exit_code == 0);
  const std::vector<std::string> lines = Split(run.out, '\n');
  REQUIRE(lines.size() == 2);
  const JsonValue plain = Json(lines[0]), drafted = Json(lines[1]);
  for (const JsonValue* record : {&plain, &drafted}) {
    RequireIdentified(*record);
    REQUIRE(TextOf(*record, "prompt_source") == prompt);
  }
  REQUIRE(NumberOf(plain, "draft_tokens") == 0);
  REQUIRE(IsNull(plain, "acceptance_rate"));
  REQUIRE(NumberOf(drafted, "draft_tokens") == 3);
  REQUIRE(NumberOf(drafted, "drafted_tokens") > 0);
  const double rate = NumberOf(drafted, "acceptance_rate");
  REQUIRE(rate >= 0);
  REQUIRE(rate <= 1);
  REQUIRE(NumberOf(drafted, "acceptance_length") >= 1);
}

TEST_CASE("CSV: one head, and rows as wide; the fields of ds4-bench are among them") {
  const Outcome run = Run("-m " + kModel + " -p 16,32 -n 0 -r 1 --no-warmup -o csv");
  REQUIRE(run.exit_code == 0);
  const std::vector<std::string> lines = Split(run.out, '\n');
  REQUIRE(lines.size() == 3);
  const std::vector<std::string> head = CsvCells(lines[0]);
  std::vector<std::map<std::string, std::string>> rows;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = CsvCells(lines[i]);
    REQUIRE(cells.size() == head.size());
    std::map<std::string, std::string>& row = rows.emplace_back();
    for (size_t column = 0; column < head.size(); ++column) row[head[column]] = cells[column];
    REQUIRE(row.size() == head.size());
  }
  REQUIRE(rows[0]["test"] == "pp16");
  REQUIRE(rows[1]["test"] == "pp32");
  REQUIRE(rows[1]["ctx_tokens"] == "32");
  REQUIRE(rows[1]["prefill_tokens"] == "32");
  REQUIRE(std::stod(rows[1]["prefill_tps"]) > 0);
  REQUIRE(rows[1]["gen_tokens"] == "0");
  REQUIRE(rows[1]["gen_tps"].empty());
  REQUIRE(std::stod(rows[1]["kvcache_bytes"]) > 0);
  REQUIRE(rows[1]["checkpoint_fingerprint"] == kFingerprint);
  // It holds commas, so it must have been quoted.
  REQUIRE(rows[1]["build_info"].find(", backends: ") != std::string::npos);
}

TEST_CASE("random weights for some layers of a folder that has a configuration alone") {
  namespace fs = std::filesystem;
  char folder[] = "/tmp/dsv4-bench-model-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const fs::path model = fs::path(folder) / "model", temporary = fs::path(folder) / "tmp";
  fs::create_directory(model);
  fs::create_directory(temporary);
  fs::copy_file(kModel + "/config.json", model / "config.json");
  REQUIRE(setenv("TMPDIR", temporary.c_str(), 1) == 0);
  const auto run = [&](const char* layers) {
    return Run("-m " + model.string() + " -p 16 -n 4 -r 1 -t 1 -o jsonl " + layers);
  };
  const Outcome one = run("--synthetic-layers 1"), three = run("--synthetic-layers 3");
  const Outcome none = run(""), too_many = run("--synthetic-layers 7");
  unsetenv("TMPDIR");
  REQUIRE(fs::is_empty(temporary));
  fs::remove_all(folder);

  REQUIRE(one.exit_code == 0);
  REQUIRE(three.exit_code == 0);
  const std::vector<std::string> lines = Split(three.out, '\n');
  REQUIRE(lines.size() == 2);
  for (const std::string& line : lines) {
    const JsonValue record = Json(line);
    REQUIRE(TextOf(record, "model") == model.string());
    REQUIRE(TextOf(record, "weight_format") == "random fp8+fp4");
    REQUIRE(NumberOf(record, "synthetic_layers") == 3);
    REQUIRE(NumberOf(record, "avg_ts") > 0);
    // The bundled model has 6 layers of about the same size, and an embedding and a head.
    const double size = NumberOf(Json(Split(one.out, '\n')[0]), "model_size");
    REQUIRE(NumberOf(record, "model_size") > size);
    REQUIRE(NumberOf(record, "model_size") < 3 * size);
  }
  REQUIRE(none.exit_code == 3);
  REQUIRE(too_many.exit_code == 3);
  REQUIRE(too_many.err.find("dsv4_synthetic_layers is 7; expected an integer from 1 to 6") !=
          std::string::npos);
}

TEST_CASE("Markdown: a table of rows as wide as its head") {
  const Outcome run = Run("-m " + kModel + " -p 16 -n 4 -r 2 --progress");
  REQUIRE(run.exit_code == 0);
  const std::vector<std::string> lines = Split(run.out, '\n');
  REQUIRE(lines.size() == 4);
  const std::vector<std::string> head = Split(lines[0], '|');
  for (const std::string& line : lines) {
    REQUIRE(line.front() == '|');
    REQUIRE(line.back() == '|');
    REQUIRE(Split(line, '|').size() == head.size());
  }
  REQUIRE(lines[2].find("| pp16 |") != std::string::npos);
  REQUIRE(lines[3].find("| tg4 |") != std::string::npos);
  REQUIRE(lines[3].find(" ± ") != std::string::npos);
  REQUIRE(lines[3].find("| " + std::string(kFingerprint).substr(0, 12) + " |") !=
          std::string::npos);
  REQUIRE(run.err == "dsv4-bench: " + kModel + ": pp16\ndsv4-bench: " + kModel + ": tg4\n");
}

TEST_CASE("serving: every request answered, with the fields of vllm bench serve") {
  const Outcome run =
      Run("-m " + kModel + " --serve -p 20 -n 6 --max-concurrency 1,3 --num-prompts 5 -o jsonl");
  REQUIRE(run.exit_code == 0);
  const std::vector<std::string> lines = Split(run.out, '\n');
  REQUIRE(lines.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const JsonValue record = Json(lines[i]);
    RequireIdentified(record);
    REQUIRE(NumberOf(record, "max_concurrency") == (i == 0 ? 1 : 3));
    REQUIRE(NumberOf(record, "completed") == 5);
    REQUIRE(NumberOf(record, "total_input_tokens") == 100);
    REQUIRE(NumberOf(record, "total_output_tokens") == 30);
    REQUIRE(NumberOf(record, "duration") > 0);
    for (const char* name : {"ttft", "tpot", "itl", "e2el"}) {
      const auto of = [&](const std::string& statistic) {
        return NumberOf(record, (statistic + "_" + name + "_ms").c_str());
      };
      REQUIRE(of("mean") > 0);
      REQUIRE(of("median") > 0);
      REQUIRE(of("median") <= of("p99"));
      REQUIRE(of("std") >= 0);
    }
    REQUIRE(NumberOf(record, "mean_ttft_ms") < NumberOf(record, "mean_e2el_ms"));
    const std::vector<JsonValue>* itls = record.Find("itls")->AsArray();
    REQUIRE(itls != nullptr);
    REQUIRE(itls->size() == 5);
    for (const JsonValue& list : *itls) REQUIRE(list.AsArray()->size() == 5);
  }
}

TEST_CASE("failures: an exit code, one line on standard error, nothing else on standard output") {
  struct Case {
    std::string arguments;
    int exit_code;
    std::string message;
  };
  const Case cases[] = {
      {"", 2, "dsv4-bench: no model: name a folder, a GGUF file or OWNER/NAME with -m\n"},
      {"-m " + kModel + " --frobnicate", 2, "dsv4-bench: unknown option --frobnicate\n"},
      {"-m " + kModel + " -p 0 -n 0", 2, "dsv4-bench: nothing to measure"},
      {"-m " + kModel + " -p 20000", 2, "context_tokens = 20002"},
      {"-m " + kModel + " -f /nonexistent", 2, "dsv4-bench: cannot read /nonexistent"},
      {"-m /nonexistent", 3, "dsv4-bench: /nonexistent/config.json: no such file\n"},
      {"-m " + kModel + " --backend cpu --numerics exact", 3, "reference backend only"},
  };
  for (const Case& failing : cases) {
    const Outcome run = Run(failing.arguments);
    INFO(failing.arguments << ": " << run.err);
    REQUIRE(run.exit_code == failing.exit_code);
    REQUIRE(run.out.empty());
    REQUIRE(run.err.find(failing.message) != std::string::npos);
    const bool says_help = run.err.find("See dsv4-bench --help.\n") != std::string::npos;
    REQUIRE(says_help == (failing.exit_code == 2));
  }
  // JSON stays whole.
  const Outcome run = Run("-m " + kModel + " -m /nonexistent -p 8 -n 0 -r 1 -o json");
  REQUIRE(run.exit_code == 3);
  REQUIRE(Json(run.out).AsArray()->size() == 1);
}

TEST_CASE("help and version go to standard output; what cannot be written is a failure") {
  const Outcome help = Run("--help");
  REQUIRE(help.exit_code == 0);
  REQUIRE(help.out.find("usage: dsv4-bench -m MODEL") == 0);
  const Outcome version = Run("--version");
  REQUIRE(version.exit_code == 0);
  REQUIRE(version.out.find("dsv4 ") == 0);
  REQUIRE(Run("--help >/dev/full").exit_code == 1);
}

TEST_CASE("Ctrl-C ends a long test with 130, and JSON stays whole") {
  char folder[] = "/tmp/dsv4-bench-interrupt-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string out = folder + std::string("/out"), err = folder + std::string("/err");
  // The signal comes while the context before the second test is computed.
  const int status =
      std::system((DSV4_BENCH " -m " + kModel + " -p 8 -n 0 -d 0,16000 -r 3 -o json --progress >" +
                   out + " 2>" + err + " & pid=$!; until grep -qs d16000 " + err +
                   "; do sleep 0.02; done; kill -INT $pid; wait $pid")
                      .c_str());
  std::stringstream text;
  text << std::ifstream(out).rdbuf();
  std::remove(out.c_str());
  std::remove(err.c_str());
  std::remove(folder);
  REQUIRE(WEXITSTATUS(status) == 130);
  REQUIRE(Json(text.str()).AsArray()->size() == 1);
}

}  // namespace
}  // namespace dsv4
