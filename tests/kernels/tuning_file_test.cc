// SPDX-License-Identifier: Apache-2.0
// Tuning files: what is accepted, how each violation is refused, and which files a device gets.
#include "kernels/tuning/tuning_file.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_replace.h"
#include "lib/base/log.h"
#include "tests/kernels/fake_kernels.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

constexpr char kFile[] = R"json({
  "schema": "dsv4.tuning/1", "operator": "linear_fp8", "impl": "sm12x.wide", "impl_rev": 3,
  "device": {"name": "made up", "cc": "12.0", "sm_count": 170}, "toolchain": {"cuda": "13.0"},
  "provenance": {"bench": "tune", "commit": "0", "date": "2026-11-21",
                 "clock": "as found"},
  "default": {"blocks_per_multiprocessor": 2, "split_rows": 32},
  "entries": [
    {"when": {"rows": [1, 8]}, "config": {"blocks_per_multiprocessor": 4, "split_rows": 16},
     "median_us": 5.5, "floor_us": 4},
    {"when": {"rows": [9, 64], "n": [1, 2048]},
     "config": {"split_rows": 32, "blocks_per_multiprocessor": 4}, "median_us": 6, "floor_us": 4},
    {"when": {"rows": [9, 64], "n": [2049, 4096]},
     "config": {"split_rows": 32, "blocks_per_multiprocessor": 2}, "median_us": 7, "floor_us": 4}]
})json";

// The file with `from` replaced, which it has once.
std::string With(const std::string& from, const std::string& to) {
  const std::string file = kFile;
  const size_t at = file.find(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(file.find(from, at + 1) == std::string::npos);
  return file.substr(0, at) + to + file.substr(at + from.size());
}

absl::StatusOr<TuningFile> Read(const std::string& json) {
  return ReadTuningFile(json, "d/x.json", kFakeManifests);
}

TEST_CASE("a file becomes the table of its entry, with knobs by name") {
  const absl::StatusOr<TuningFile> file = Read(kFile);
  REQUIRE_OK(file);
  REQUIRE(file->compute_capability == 120);
  REQUIRE(file->multiprocessors == 170);
  const TuningTable& table = file->table;
  REQUIRE(table.entry == &kFakeEntries[0]);
  REQUIRE(table.fallback == KernelConfig{{2, 32}});
  const auto config = [&](int64_t rows, int64_t n) {
    return table.For({{"rows", rows}, {"n", n}, {"k", 4096}});
  };
  REQUIRE(config(1, 100000) == KernelConfig{{4, 16}});
  REQUIRE(config(8, 1) == KernelConfig{{4, 16}});
  REQUIRE(config(9, 2048) == KernelConfig{{4, 32}});
  REQUIRE(config(64, 2049) == KernelConfig{{2, 32}});
  REQUIRE(config(64, 4097) == KernelConfig{{2, 32}});
  REQUIRE(config(65, 1) == KernelConfig{{2, 32}});
  REQUIRE(config(0, 1) == KernelConfig{{2, 32}});
}

TEST_CASE("every violation of the schema is refused with the file and the key") {
  struct Case {
    const char *from, *to, *message;
  };
  const Case cases[] = {
      {"{\n  \"schema\"", "[{\n  \"schema\"", "d/x.json: line "},
      {kFile, "[]", "d/x.json: the document is not an object but of type array"},
      {kFile, "7", "d/x.json: the document is not an object but of type number"},
      {"\"dsv4.tuning/1\"", "\"dsv4.tuning/2\"", "schema = \"dsv4.tuning/2\" is not \"dsv4"},
      {"\"schema\": \"dsv4.tuning/1\", ", "", "d/x.json: schema is missing"},
      {"\"operator\": \"linear_fp8\", ", "", "d/x.json: operator is missing"},
      {"\"impl\": \"sm12x.wide\", ", "", "d/x.json: impl is missing"},
      {", \"impl_rev\": 3", "", "d/x.json: impl_rev is missing"},
      {"\"name\": \"made up\", ", "", "d/x.json: device.name is missing"},
      {", \"sm_count\": 170", "", "d/x.json: device.sm_count is missing"},
      {", \"toolchain\": {\"cuda\": \"13.0\"}", "", "d/x.json: toolchain is missing"},
      {"\"cuda\": \"13.0\"", "", "d/x.json: toolchain.cuda is missing"},
      {"\"bench\": \"tune\", ", "", "d/x.json: provenance.bench is missing"},
      {"\"commit\": \"0\", ", "", "d/x.json: provenance.commit is missing"},
      {"\"date\": \"2026-11-21\",", "", "d/x.json: provenance.date is missing"},
      {",\n                 \"clock\": \"as found\"", "", "d/x.json: provenance.clock is missing"},
      {", \"floor_us\": 4},\n    {\"when\": {\"rows\": [9, 64], \"n\": [1,",
       "},\n    {\"when\": {\"rows\": [9, 64], \"n\": [1,", "entries[0].floor_us is missing"},
      {"\"schema\"", "\"author\": \"me\", \"schema\"", "d/x.json: \"author\" is not a known key"},
      {"\"cc\"", "\"speed\": 1, \"cc\"", "d/x.json: device.\"speed\" is not a known key"},
      {"\"cc\": \"12.0\", ", "", "d/x.json: device.cc is missing"},
      {"\"12.0\"", "12.0", "d/x.json: device.cc is not a string but of type number"},
      {"\"12.0\"", "\"12\"", "device.cc = \"12\" is not a compute capability"},
      {"\"12.0\"", "\"1x.0\"", "device.cc = \"1x.0\" is not a compute capability"},
      {"\"sm_count\": 170", "\"sm_count\": 0", "device.sm_count = 0 is less than 1"},
      {"\"sm_count\": 170", "\"sm_count\": 17.5", "device.sm_count = 17.5 is not an integer"},
      {"\"sm_count\": 170", "\"sm_count\": \"170\"", "device.sm_count is not an integer but of"},
      {"\"sm_count\": 170", "\"sm_count\": 3000000000", "device.sm_count = 3000000000 is not an"},
      {"\"impl_rev\": 3", "\"impl_rev\": null", "impl_rev is not an integer but of type null"},
      {"\"sm12x.wide\"", "\"sm12x.gone\"", "impl = \"sm12x.gone\" is not a kernel of this build"},
      {"\"linear_fp8\"", "\"rms_norm\"", "operator = \"rms_norm\" is not that of sm12x.wide"},
      {"\"median_us\": 5.5, ", "", "entries[0].median_us is missing"},
      {"5.5", "-5.5", "entries[0].median_us = -5.5 is negative"},
      {"5.5", "1e999", "entries[0].median_us = 1e999 is out of range"},
      {"5.5", "\"5.5\"", "entries[0].median_us is not a number but of type string"},
      {"{\"rows\": [1, 8]}", "{\"tokens\": [1, 8]}",
       "entries[0].when: \"tokens\" is not a dimension of linear_fp8"},
      {"[1, 8]", "[8, 1]", "entries[0].when.rows = [8, 1] is not a range"},
      {"[1, 8]", "[-1, 8]", "entries[0].when.rows = [-1, 8] is not a range"},
      {"[1, 8]", "[1]", "entries[0].when.rows has 1 items, not 2"},
      {"[1, 8]", "[1, 8, 9]", "entries[0].when.rows has 3 items, not 2"},
      {"[1, 8]", "[1, 8.5]", "entries[0].when.rows[1] = 8.5 is not an integer of 64 bits"},
      {"[1, 8]", "8", "entries[0].when.rows is not an array but of type number"},
      {"[1, 8]", "[1, 9]", "entries[1].when overlaps entries[0].when"},
      {"[2049, 4096]", "[2048, 4096]", "entries[2].when overlaps entries[1].when"},
      {", \"n\": [1, 2048]", "", "entries[2].when overlaps entries[1].when"},
      {"[1, 8]", "[65, 80]", "entries[1].when is not sorted: it begins before entries[0].when"},
      {"\"split_rows\": 16", "\"rows\": 16",
       "entries[0].config: \"rows\" is not a knob of sm12x.wide"},
      {"4, \"split_rows\": 16", "4", "entries[0].config.split_rows is missing"},
      {"\"split_rows\": 16", "\"split_rows\": 64",
       "entries[0].config is not among the configs of sm12x.wide"},
      {"\"split_rows\": 16", "\"split_rows\": true",
       "entries[0].config.split_rows is not an integer but of type boolean"},
      {"\"default\": {\"blocks_per_multiprocessor\": 2, ", "\"default\": {",
       "default.blocks_per_multiprocessor is missing"},
      {"\"blocks_per_multiprocessor\": 2, \"split_rows\": 32}",
       "\"blocks_per_multiprocessor\": 2, \"split_rows\": 16}",
       "default is not among the configs of sm12x.wide"},
  };
  for (const Case& c : cases) {
    const std::string json = c.from == kFile ? c.to : With(c.from, c.to);
    INFO(c.from << " -> " << c.to);
    const absl::Status status = Read(json).status();
    INFO(status.ToString());
    REQUIRE(status.code() == absl::StatusCode::kDataLoss);
    REQUIRE(status.message().substr(0, 10) == "d/x.json: ");
    REQUIRE(std::string(status.message()).find(c.message) != std::string::npos);
  }
}

// Lines of the log while it lives.
class LogLines {
 public:
  LogLines() { SetLogCallback(&Collect, &lines, LogLevel::kInfo); }
  ~LogLines() { SetLogCallback(nullptr, nullptr, LogLevel::kInfo); }
  std::vector<std::string> lines;

 private:
  static void Collect(void* user, LogLevel, const char* message) {
    static_cast<std::vector<std::string>*>(user)->push_back(message);
  }
};

TEST_CASE("a file for another revision of its entry is passed over, with one line in the log") {
  // Knobs that the entry no longer has are not looked at.
  const std::string json =
      absl::StrReplaceAll(With("\"impl_rev\": 3", "\"impl_rev\": 2"), {{"split_rows", "gone"}});
  const EmbeddedTuningFile embedded[] = {{"in/build.json", json.c_str()}};
  LogLines log;
  const auto tables = TablesOf(FakeDevice(120, 170), {}, embedded, kFakeManifests);
  REQUIRE_OK(tables);
  REQUIRE(tables->empty());
  REQUIRE(log.lines == std::vector<std::string>{
                           "in/build.json: not used: it is for revision 2 of sm12x.wide, which is "
                           "at 3"});
}

TEST_CASE("a device gets the files of its capability and multiprocessors") {
  const std::string rtx = kFile, gb10 = With("\"cc\": \"12.0\", \"sm_count\": 170",
                                             "\"cc\": \"12.1\", \"sm_count\": 48");
  const std::string pro = With("\"sm_count\": 170", "\"sm_count\": 188");
  const EmbeddedTuningFile embedded[] = {
      {"a.json", rtx.c_str()}, {"b.json", gb10.c_str()}, {"c.json", pro.c_str()}};
  for (const auto& [capability, multiprocessors, count] :
       {std::tuple{120, 170, 1}, {121, 48, 1}, {120, 188, 1}, {120, 48, 0}, {90, 132, 0}}) {
    INFO(capability << ", " << multiprocessors);
    LogLines log;
    const auto tables =
        TablesOf(FakeDevice(capability, multiprocessors), {}, embedded, kFakeManifests);
    REQUIRE_OK(tables);
    REQUIRE(static_cast<int>(tables->size()) == count);
    REQUIRE(log.lines.empty());
  }
}

class Directory {
 public:
  Directory() : path_(std::filesystem::temp_directory_path() / "dsv4_tuning_file_test") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  // As the system writes it.
  std::string File(const std::string& name) const { return (path_ / name).string(); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }

 private:
  std::filesystem::path path_;
};

TEST_CASE("a directory's files take the place of the build's") {
  const Directory directory;
  REQUIRE_FAILS(ReadTuningDirectory(directory.path(), kFakeManifests),
                absl::StatusCode::kInvalidArgument, directory.path() + ": there is no tuning file");
  directory.Write("README", "not a table");
  directory.Write("wide.json", With("\"impl_rev\": 3", "\"impl_rev\": 3"));
  const std::string built = With("\"split_rows\": 16", "\"split_rows\": 32");
  const std::string attention = absl::StrReplaceAll(With("\"impl_rev\": 3", "\"impl_rev\": 7"),
                                                    {{"linear_fp8", "sparse_attention"},
                                                     {"sm12x.wide", "sm12x.attention"},
                                                     {"\"n\"", "\"context\""}});
  const EmbeddedTuningFile embedded[] = {{"wide", built.c_str()}, {"other", attention.c_str()}};
  auto files = ReadTuningDirectory(directory.path(), kFakeManifests);
  REQUIRE_OK(files);
  auto tables = TablesOf(FakeDevice(120, 170), *files, embedded, kFakeManifests);
  REQUIRE_OK(tables);
  REQUIRE(tables->size() == 2);
  REQUIRE((*tables)[0].entry == &kFakeEntries[0]);
  REQUIRE((*tables)[0].For({{"rows", 1}}) == KernelConfig{{4, 16}});
  REQUIRE((*tables)[1].entry == &kFakeEntries[4]);

  // On another device they say so, and the build's are asked.
  LogLines log;
  tables = TablesOf(FakeDevice(120, 188), *files, embedded, kFakeManifests);
  REQUIRE_OK(tables);
  REQUIRE(tables->empty());
  REQUIRE(log.lines ==
          std::vector<std::string>{directory.File("wide.json") +
                                   ": not used: it is for compute capability "
                                   "12.0 with 170 multiprocessors, and made up has 12.0 "
                                   "with 188"});

  directory.Write("wide2.json", kFile);
  REQUIRE_FAILS(ReadTuningDirectory(directory.path(), kFakeManifests),
                absl::StatusCode::kInvalidArgument, "wide2.json: impl = \"sm12x.wide\", for which");
  directory.Write("wide2.json", With("\"schema\"", "\"shema\""));
  REQUIRE_FAILS(ReadTuningDirectory(directory.path(), kFakeManifests), absl::StatusCode::kDataLoss,
                directory.File("wide2.json") + ": \"shema\" is not a known key");
}

TEST_CASE("a directory that is not there is refused by name") {
  REQUIRE_FAILS(ReadTuningDirectory("/nowhere/tables", kFakeManifests), absl::StatusCode::kNotFound,
                "/nowhere/tables: no such directory");
  const Directory directory;
  directory.Write("file", "");
  REQUIRE_FAILS(ReadTuningDirectory(directory.path() + "/file", kFakeManifests),
                absl::StatusCode::kUnavailable, directory.path() + "/file: ");
}

}  // namespace
}  // namespace dsv4::test
