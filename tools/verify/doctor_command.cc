// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/doctor_command.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/device/buffer.h"
#include "lib/device/watched_thread.h"
#include "lib/io/direct_reader.h"
#include "lib/proof/device_proof.h"
#include "lib/proof/list_devices.h"
#include "lib/proof/open_best.h"
#include "tools/verify/command_line.h"
#include "tools/verify/found_model.h"
#include "tools/verify/gpu_state.h"
#include "tools/verify/rdma_devices.h"

namespace dsv4 {
namespace {

namespace fs = std::filesystem;

constexpr OptionSpec kOptions[] = {{"--limit"}};
constexpr int32_t kMostSeconds = 86400;

std::string Gigabytes(int64_t bytes) {
  return absl::StrFormat("%.1f GB", static_cast<double>(bytes) * 1e-9);
}

// Prints lines without the model's folder and the user's home.
class Page {
 public:
  explicit Page(const std::string& model) {
    fs::path path = fs::path(model).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (path.has_parent_path()) hidden_.emplace_back(path.parent_path().string() + "/", "");
    std::error_code error;
    const fs::path absolute = fs::absolute(path, error);
    if (!model.empty()) hidden_.emplace_back(absolute.parent_path().string() + "/", "");
    const char* home = std::getenv("HOME");
    if (home != nullptr && std::string(home).size() > 1) hidden_.emplace_back(home, "~");
    name_ = path.filename().string();
  }
  const std::string& model() const { return name_; }
  void Line(const std::string& name, const std::string& text) const {
    std::string shown = text;
    for (const auto& [from, to] : hidden_) absl::StrReplaceAll({{from, to}}, &shown);
    std::printf("%-14s %s\n", name.c_str(), shown.c_str());
    std::fflush(stdout);
  }

 private:
  std::vector<std::pair<std::string, std::string>> hidden_;
  std::string name_;
};

// Bytes per second of copies from pinned host memory.
absl::StatusOr<double> LinkRate(Device& device) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  constexpr int kCopies = 8;
  const DeviceScope scope(&device);
  DSV4_ASSIGN_OR_RETURN(const Buffer to, device.Allocate(kBytes, "a measurement"));
  DSV4_ASSIGN_OR_RETURN(const Buffer from, device.AllocateHost(kBytes, "a measurement"));
  DSV4_RETURN_IF_ERROR(device.Copy(to.data(), from.data(), kBytes));
  DSV4_RETURN_IF_ERROR(device.Synchronize());
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCopies; ++i) {
    DSV4_RETURN_IF_ERROR(device.Copy(to.data(), from.data(), kBytes));
  }
  DSV4_RETURN_IF_ERROR(device.Synchronize());
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return kCopies * static_cast<double>(kBytes) / time.count();
}

// What failed; whether the GPU is refused for it, the second set decides.
std::string FailureOf(const absl::Status& proof) {
  constexpr absl::string_view kRefused = " is refused: ";
  const absl::string_view text = proof.message();
  const size_t at = text.find(kRefused);
  return std::string(at == absl::string_view::npos ? text : text.substr(at + kRefused.size()));
}

// The known answers with both sets of kernels, and which of them engines run.
void PrintKernels(const Page& page, int32_t index) {
  constexpr std::pair<KernelSet, const char*> kSets[] = {{KernelSet::kFirst, "first set: "},
                                                         {KernelSet::kSecond, "second set: "}};
  const char* runs = nullptr;
  for (const auto& [set, name] : kSets) {
    ProofOptions options;
    options.devices = {index};
    options.kernel_set = set;
    const absl::StatusOr<DeviceProof> proof = ProveDevices(options);
    page.Line(set == KernelSet::kFirst ? "  proof" : "",
              name + (proof.ok() ? absl::StrFormat("%d outputs pass, in %.0f ms",
                                                   proof->flips.size(), proof->seconds * 1e3)
                                 : FailureOf(proof.status())));
    if (proof.ok() && runs == nullptr) runs = set == KernelSet::kFirst ? "first" : "second";
    if (!proof.ok() && !IsUnsupported(proof.status())) break;  // of the device
  }
  page.Line("", runs == nullptr ? std::string("the GPU is refused")
                                : absl::StrCat("engines run the ", runs, " set of kernels"));
}

void PrintGpu(const Page& page, const DeviceListing& gpu) {
  const std::string id = gpu.index < 0 ? "gpu" : absl::StrCat("cuda:", gpu.index);
  if (!gpu.reason.empty()) return page.Line(id, "not usable: " + gpu.reason);
  page.Line(id, absl::StrCat(gpu.name, ", compute capability ",
                             ComputeCapabilityName(gpu.compute_capability), ", ",
                             Gigabytes(gpu.free_bytes), " of ", Gigabytes(gpu.total_bytes), " free",
                             gpu.integrated ? " (the system's memory)" : ""));
  absl::StatusOr<std::unique_ptr<Device>> device =
      Device::Open({.kind = DeviceKind::kCuda, .index = gpu.index});
  if (!device.ok()) return page.Line("", std::string(device.status().message()));
  const absl::StatusOr<GpuState> state = ReadGpuState((*device)->bus_id());
  page.Line("  driver", state.ok() ? state->driver : std::string(state.status().message()));
  const absl::StatusOr<double> rate = LinkRate(**device);
  page.Line("  link", rate.ok() ? absl::StrFormat("%.1f GB/s from host memory", *rate * 1e-9)
                                : std::string(rate.status().message()));
  PrintKernels(page, gpu.index);
}

void PrintPeers(const Page& page, const std::vector<DeviceListing>& devices) {
  std::vector<std::unique_ptr<Device>> gpus;
  for (const DeviceListing& listed : devices) {
    if (listed.kind != DeviceKind::kCuda || !listed.reason.empty()) continue;
    auto device = Device::Open({.kind = DeviceKind::kCuda, .index = listed.index});
    if (device.ok()) gpus.push_back(*std::move(device));
  }
  for (size_t i = 1; i < gpus.size(); ++i) {
    const absl::Status reached = gpus[0]->ReachMemoryOf(*gpus[i]);
    page.Line("peer access",
              absl::StrCat("cuda:", gpus[0]->index(), " to cuda:", gpus[i]->index(), ": ",
                           reached.ok() ? "yes" : std::string(reached.message())));
  }
}

// Reads the largest file of the model past the page cache, 8 pieces of 8 MiB at a time.
absl::StatusOr<double> DiskRate(const std::string& model) {
  constexpr int64_t kPiece = int64_t{8} << 20, kMost = int64_t{512} << 20;
  constexpr int kPieces = 8;
  std::vector<fs::path> files = {model};
  std::error_code error;
  if (fs::is_directory(model, error)) {
    files.clear();
    for (const fs::directory_entry& entry : fs::directory_iterator(model, error)) {
      if (entry.is_regular_file(error)) files.push_back(entry.path());
    }
  }
  fs::path largest;
  int64_t size = 0;
  for (const fs::path& file : files) {
    const auto bytes = static_cast<int64_t>(fs::file_size(file, error));
    if (!error && bytes > size) {
      size = bytes;
      largest = file;
    }
  }
  if (size < kPiece) return NotFound("the model's files are too small to measure");
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<DirectReader> reader,
                        DirectReader::Open({largest.string()}, {}));
  const int64_t room = DirectReader::RoomFor(kPiece);
  DSV4_ASSIGN_OR_RETURN(
      const Buffer memory,
      Buffer::AllocateHost(kPieces * room + DirectReader::kReadAlignment, "a measurement"));
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  constexpr auto kAlignment = static_cast<uintptr_t>(DirectReader::kReadAlignment);
  std::byte* const begin = memory.data() + (kAlignment - address % kAlignment) % kAlignment;
  const auto start = std::chrono::steady_clock::now();
  int64_t read = 0;
  while (read + kPiece <= std::min(size, kMost)) {
    std::vector<FilePiece> pieces;
    for (int i = 0; i < kPieces && read + kPiece <= std::min(size, kMost); ++i, read += kPiece) {
      pieces.push_back({.file = 0, .offset = read, .bytes = kPiece, .memory = begin + i * room});
    }
    DSV4_RETURN_IF_ERROR(reader->Read(pieces));
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return static_cast<double>(read) / time.count();
}

void PrintPlan(const Page& page, const std::string& name, const absl::StatusOr<EnginePlan>& plan) {
  absl::Status status = plan.status();
  if (plan.ok()) status = plan->CheckRoom();
  if (!status.ok()) return page.Line(name, "no: " + std::string(status.message()));
  const EngineInfo& info = plan->info();
  const ResidencyPlan& experts = info.residency;
  std::string text =
      absl::StrCat(BackendName(info.backend), ", weights ", Gigabytes(info.weight_bytes),
                   ", cache ", Gigabytes(info.cache_bytes), ", workspace ",
                   Gigabytes(info.workspace_bytes), ", context ", info.context_tokens, " tokens");
  if (experts.on_host > 0 || experts.on_disk > 0) {
    absl::StrAppend(&text, ", experts: ", experts.on_device, " on the device, ", experts.on_host,
                    " in host memory, ", experts.on_disk, " on disk");
  }
  page.Line(name, absl::StrFormat("%s; about %.1f tokens a second (predicted)", text,
                                  info.expected_decode));
  if (!info.second_set_operators.empty()) {
    page.Line("", absl::StrCat("second set of kernels: ",
                               absl::StrJoin(info.second_set_operators, ", ")));
  }
}

// Where a model runs, and why not elsewhere. False: nowhere.
bool PrintPlans(const Page& page, const std::string& model) {
  OpenOptions best;
  best.prefer_gpu = best.prove = best.canary = true;
  const absl::StatusOr<EnginePlan> chosen = PlanBest(model, best);
  PrintPlan(page, "  chosen", chosen);
  if (chosen.ok()) page.Line("  because", chosen->info().backend_reason);
  for (const Backend backend : {Backend::kCuda, Backend::kCpu}) {
    if (chosen.ok() && chosen->info().backend == backend) continue;
    EngineOptions other;
    other.backend = backend;
    PrintPlan(page, absl::StrCat("  with ", BackendName(backend)), Engine::Plan(model, other));
  }
  return chosen.ok();
}

// Runs `print` on a thread of its own, and ends the program if a call of a GPU's driver does not
// return within the limit.
void PrintWatched(const Page& page, std::chrono::seconds limit, absl::FunctionRef<void()> print) {
  const absl::StatusOr<std::unique_ptr<WatchedThread>> thread = WatchedThread::Start(limit);
  if (!thread.ok()) return page.Line("", std::string(thread.status().message()));
  absl::Status status;
  const bool ended = (*thread)->Run([&] {
    status = Contained([&] {
      print();
      return absl::OkStatus();
    });
  });
  if (!status.ok()) page.Line("", std::string(status.message()));
  if (ended) return;
  page.Line("", absl::StrCat("a driver has not returned from a call within ", limit.count(),
                             " s: the rest of this page is missing"));
  std::_Exit(kExitFailed);  // others would wait for the thread
}

}  // namespace

int RunDoctorCommand(absl::Span<char* const> arguments) {
  const absl::StatusOr<Arguments> parsed = ParseArguments(arguments, kOptions, 1, 1);
  if (!parsed.ok()) return ReportUsage(parsed.status());
  int32_t seconds = 30;
  const absl::Status read = parsed->Number<int32_t>("--limit", 1, kMostSeconds, &seconds);
  if (!read.ok()) return ReportUsage(read);
  const std::chrono::seconds limit(seconds);
  std::string model;
  if (!parsed->files.empty()) {
    const absl::StatusOr<std::string> found = FoundModel(parsed->files[0]);
    if (!found.ok()) return ReportError(found.status());
    model = *found;
  }
  const Page page(model);
  page.Line("dsv4", DSV4_PROJECT_VERSION);
  const std::vector<DeviceListing> devices = ListDevices();
  const DeviceListing& cpu = devices.back();
  page.Line("cpu",
            absl::StrCat(cpu.name, ", ", UsableCores(), " usable cores, ",
                         Gigabytes(cpu.free_bytes), " of ", Gigabytes(cpu.total_bytes), " free"));
  PrintWatched(page, limit, [&] {
    for (const DeviceListing& device : devices) {
      if (device.kind == DeviceKind::kCuda) PrintGpu(page, device);
    }
    PrintPeers(page, devices);
  });
  const char* name = "rdma";
  for (const std::string& line : DescribeRdma(ListRdmaDevices(), std::getenv("NCCL_IB_HCA"))) {
    page.Line(std::exchange(name, ""), line);
  }
  if (model.empty()) return kExitPassed;
  page.Line("model", model == parsed->files[0] ? page.model() : parsed->files[0]);
  const absl::StatusOr<double> disk = DiskRate(model);
  page.Line("  disk", disk.ok() ? absl::StrFormat("%.2f GB/s", *disk * 1e-9)
                                : std::string(disk.status().message()));
  bool runs = false;
  PrintWatched(page, limit, [&] { runs = PrintPlans(page, model); });
  return runs ? kExitPassed : kExitInput;  // the page has the error
}

}  // namespace dsv4
