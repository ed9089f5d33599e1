// SPDX-License-Identifier: Apache-2.0
// Overlapped reads: up to kRequests are under way at once, each with an event that its end sets.
#include <windows.h>

#include <algorithm>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/direct_reader.h"
#include "lib/io/native_path.h"
#include "lib/io/system_error.h"

namespace dsv4 {
namespace {

constexpr size_t kRequests = 64;
constexpr int64_t kRequestBytes = int64_t{1} << 30;  // of one

int LastError() { return static_cast<int>(GetLastError()); }

}  // namespace

class DirectReader::Ring {
 public:
  struct Request {
    OVERLAPPED overlapped{};
    size_t rest = 0;
  };

  // Null if the system gives no events.
  static std::unique_ptr<Ring> Open(size_t requests) {
    std::unique_ptr<Ring> ring(new Ring);
    ring->requests_.resize(requests);
    for (Request& request : ring->requests_) {
      request.overlapped.hEvent = CreateEventW(nullptr, TRUE, FALSE, nullptr);
      if (request.overlapped.hEvent == nullptr) return nullptr;
    }
    return ring;
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    for (const Request& request : requests_) {
      if (request.overlapped.hEvent != nullptr) CloseHandle(request.overlapped.hEvent);
    }
  }

  absl::Span<Request> requests() { return absl::MakeSpan(requests_); }

 private:
  Ring() = default;
  std::vector<Request> requests_;
};

absl::StatusOr<std::unique_ptr<DirectReader>> DirectReader::Open(
    const std::vector<std::string>& paths, const Options& options) {
  std::unique_ptr<DirectReader> reader(new DirectReader);
  reader->plain_ = options.plain;
  for (const std::string& path : paths) {
    const HANDLE file = CreateFileW(
        NativePath(path).c_str(), GENERIC_READ,
        FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr, OPEN_EXISTING,
        FILE_FLAG_NO_BUFFERING | FILE_FLAG_OVERLAPPED | FILE_FLAG_BACKUP_SEMANTICS, nullptr);
    if (file == INVALID_HANDLE_VALUE) return SystemError(path, "open", LastError());
    reader->files_.push_back({path, reinterpret_cast<intptr_t>(file)});
    BY_HANDLE_FILE_INFORMATION info{};
    if (GetFileType(file) != FILE_TYPE_DISK || !GetFileInformationByHandle(file, &info) ||
        (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0) {
      return InvalidArgument(path, ": not a regular file");
    }
  }
  reader->ring_ = Ring::Open(options.plain ? 1 : kRequests);
  if (reader->ring_ == nullptr) {
    return OutOfHostMemory("cannot make events for reads: ", SystemReason(LastError()));
  }
  return reader;
}

DirectReader::~DirectReader() {
  for (const File& file : files_) {
    if (file.handle != -1) CloseHandle(reinterpret_cast<HANDLE>(file.handle));
  }
}

// In rounds: all requests are begun, then all are waited for, so that at the end none is under way.
absl::Status DirectReader::ReadRests() {
  absl::Status status;
  ready_.resize(rests_.size());
  for (size_t i = 0; i < ready_.size(); ++i) ready_[i] = ready_.size() - 1 - i;
  const auto file_of = [&](const Rest& rest) {
    return reinterpret_cast<HANDLE>(files_[static_cast<size_t>(rest.piece->file)].handle);
  };
  while (status.ok() && !ready_.empty()) {
    const absl::Span<Ring::Request> requests =
        ring_->requests().first(std::min(ready_.size(), ring_->requests().size()));
    size_t begun = 0;
    for (; begun < requests.size(); ++begun) {
      Ring::Request& request = requests[begun];
      request.rest = ready_.back();
      const Rest& rest = rests_[request.rest];
      request.overlapped.Offset = static_cast<DWORD>(rest.begin);
      request.overlapped.OffsetHigh = static_cast<DWORD>(rest.begin >> 32);
      const auto bytes = static_cast<DWORD>(std::min(rest.end - rest.begin, kRequestBytes));
      if (!::ReadFile(file_of(rest), rest.to, bytes, nullptr, &request.overlapped) &&
          GetLastError() != ERROR_IO_PENDING) {
        const int error = LastError();
        status = Advance(error == ERROR_HANDLE_EOF ? 0 : -int64_t{error}, &rests_[request.rest]);
        break;
      }
      ready_.pop_back();
    }
    for (const Ring::Request& request : requests.first(begun)) {
      Rest& rest = rests_[request.rest];
      DWORD got = 0;
      int64_t result = 0;
      if (GetOverlappedResult(file_of(rest), const_cast<OVERLAPPED*>(&request.overlapped), &got,
                              TRUE)) {
        result = got;
      } else if (GetLastError() != ERROR_HANDLE_EOF) {
        result = -int64_t{LastError()};
      }
      const absl::Status advanced = Advance(result, &rest);
      if (status.ok()) status = advanced;
      if (rest.begin < rest.end) ready_.push_back(request.rest);
    }
  }
  return status;
}

}  // namespace dsv4
