// SPDX-License-Identifier: Apache-2.0
// Tuning tables of an engine on the cuda backend: those of a directory are used, and change no bit.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_join.h"
#include "kernels/builtin.h"
#include "lib/base/log.h"
#include "tests/support/bundled_model.h"

namespace dsv4::test {
namespace {

// A directory of tables for this device in which every kernel's default is its `index`-th config.
class Tables {
 public:
  Tables(const DeviceTraits& device, size_t index) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    for (const Manifest& manifest : BuiltinManifests()) {
      for (const KernelEntry& entry : manifest) {
        if (!entry.knobs.names.empty()) Write(entry, device, index);
      }
    }
  }
  ~Tables() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  int count() const { return count_; }

 private:
  void Write(const KernelEntry& entry, const DeviceTraits& device, size_t index) {
    const KernelKnobs& knobs = entry.knobs;
    const KernelConfig& config = knobs.configs[std::min(index, knobs.configs.size() - 1)];
    std::vector<std::string> values;
    for (size_t i = 0; i < knobs.names.size(); ++i) {
      values.push_back(absl::StrCat("\"", knobs.names[i], "\": ", config.values[i]));
    }
    std::ofstream(path_ / absl::StrCat(entry.name, ".json"))
        << "{\"schema\": \"dsv4.tuning/1\", \"operator\": \"" << OpName(entry.op)
        << "\", \"impl\": \"" << entry.name << "\", \"impl_rev\": " << entry.rev
        << ", \"device\": {\"name\": \"this one\", \"cc\": \""
        << ComputeCapabilityName(device.compute_capability)
        << "\", \"sm_count\": " << device.multiprocessors
        << "}, \"toolchain\": {\"cuda\": \"any\"}, \"provenance\": {\"basis\": \"measured\", "
           "\"bench\": \"none\", \"commit\": \"none\", \"date\": \"none\", \"clock\": \"none\"}, "
           "\"default\": {"
        << absl::StrJoin(values, ", ") << "}, \"entries\": []}";
    ++count_;
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / "dsv4_tuning_cuda_test";
  int count_ = 0;
};

// The logits of a prompt and of steps after it.
std::vector<float> Logits(const std::string& tuning_dir) {
  const auto engine = OpenBundled({.context_tokens = 1024, .tuning_dir = tuning_dir});
  const auto session = OpenSession(engine);
  REQUIRE_OK(session->Sync(AnyTokens(600, 5)));
  std::vector<float> all(session->logits().begin(), session->logits().end());
  for (int i = 0; i < 8; ++i) {
    REQUIRE_OK(session->Step());
    all.insert(all.end(), session->logits().begin(), session->logits().end());
  }
  return all;
}

void Keep(void* user, LogLevel, const char* line) { *static_cast<std::string*>(user) += line; }

TEST_CASE("tables of a directory are used, and change no bit") {
  const auto device = Device::Open({.kind = DeviceKind::kCuda});
  REQUIRE_OK(device);
  size_t configs = 0;
  for (const Manifest& manifest : BuiltinManifests()) {
    for (const KernelEntry& entry : manifest) {
      configs = std::max(configs, entry.knobs.configs.size());
    }
  }
  const std::vector<float> own = Logits("");
  for (size_t index = 0; index < configs; ++index) {
    INFO("config " << index);
    const Tables tables((*device)->traits(), index);
    std::string log;
    SetLogCallback(&Keep, &log, LogLevel::kInfo);
    const std::vector<float> tuned = Logits(tables.path());
    SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
    REQUIRE(log.find(absl::StrCat("tuning tables of ", tables.count(), " kernels")) !=
            std::string::npos);
    REQUIRE(log.find("not used") == std::string::npos);
    REQUIRE(tuned == own);
  }
}

}  // namespace
}  // namespace dsv4::test
