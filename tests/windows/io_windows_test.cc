// SPDX-License-Identifier: Apache-2.0
// What Linux's tests of these classes cannot show, because they need fork, FIFOs or io_uring.
#include <windows.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "lib/io/direct_reader.h"
#include "lib/io/mapped_file.h"
#include "lib/io/native_path.h"
#include "lib/io/page_advice.h"
#include "lib/io/replaced_file.h"
#include "lib/io/system_memory.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kBytes = 300'000;

absl::Status Write(const std::string& path, char fill) {
  absl::StatusOr<ReplacedFile> file = ReplacedFile::Create(path, kBytes);
  if (!file.ok()) return file.status();
  std::fill(file->bytes().begin(), file->bytes().end(), static_cast<uint8_t>(fill));
  return file->Commit();
}

std::string ContentOf(const std::string& path) {
  absl::StatusOr<std::string> content = ReadFile(path, 1 << 20);
  REQUIRE_OK(content);
  return *std::move(content);
}

int64_t FilesIn(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

HANDLE OpenForReading(const std::string& path) {
  return CreateFileW(NativePath(path).c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr,
                     OPEN_EXISTING, 0, nullptr);
}

TEST_CASE("a file is replaced whole, or stays") {
  const test::TempFolder folder;
  const std::string path = folder.File("session");
  REQUIRE_OK(Write(path, 'a'));
  REQUIRE(ContentOf(path) == std::string(kBytes, 'a'));
  {
    absl::StatusOr<ReplacedFile> dropped = ReplacedFile::Create(path, kBytes);
    REQUIRE_OK(dropped);
    REQUIRE(FilesIn(folder.path()) == 2);
  }
  REQUIRE(FilesIn(folder.path()) == 1);
  REQUIRE_OK(Write(path, 'b'));
  REQUIRE(ContentOf(path) == std::string(kBytes, 'b'));
  REQUIRE(FilesIn(folder.path()) == 1);
}

TEST_CASE("a file that another program holds is replaced once it lets go") {
  const test::TempFolder folder;
  const std::string path = folder.File("session");
  REQUIRE_OK(Write(path, 'a'));
  const HANDLE scanner = OpenForReading(path);
  REQUIRE(scanner != INVALID_HANDLE_VALUE);
  std::thread leaves([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    CloseHandle(scanner);
  });
  const absl::Status written = Write(path, 'b');
  leaves.join();
  REQUIRE_OK(written);
  REQUIRE(ContentOf(path) == std::string(kBytes, 'b'));
}

TEST_CASE("a file that another program keeps is named, and stays") {
  const test::TempFolder folder;
  const std::string path = folder.File("session");
  REQUIRE_OK(Write(path, 'a'));
  const HANDLE holder = OpenForReading(path);
  REQUIRE(holder != INVALID_HANDLE_VALUE);
  REQUIRE_FAILS(Write(path, 'b'), absl::StatusCode::kUnavailable,
                path + ": cannot put the new file in its place");
  CloseHandle(holder);
  REQUIRE(ContentOf(path) == std::string(kBytes, 'a'));
  REQUIRE(FilesIn(folder.path()) == 1);
}

TEST_CASE("what is no file is refused") {
  const test::TempFolder folder;
  REQUIRE_FAILS(Write(folder.path(), 'a'), absl::StatusCode::kInvalidArgument,
                "not a regular file");
  REQUIRE_FAILS(Write("NUL", 'a'), absl::StatusCode::kInvalidArgument, "not a regular file");
  REQUIRE_FAILS(Write(folder.File("none/session"), 'a'), absl::StatusCode::kNotFound,
                "its folder does not exist");
  REQUIRE_FAILS(MappedFile::Open(folder.path()), absl::StatusCode::kInvalidArgument,
                "not a regular file");
  REQUIRE_FAILS(MappedFile::Open("NUL"), absl::StatusCode::kInvalidArgument, "not a regular file");
  REQUIRE_FAILS(MappedFile::Open(folder.File("none")), absl::StatusCode::kNotFound,
                folder.File("none") + ": no such file");
  REQUIRE_FAILS(MappedFile::Open(folder.File("a<b?")), absl::StatusCode::kNotFound, "no such file");
  REQUIRE_FAILS(MappedFile::Open(std::string("a\0b", 3)), absl::StatusCode::kInvalidArgument,
                "NUL byte");
}

TEST_CASE("direct reads give the bytes of the file, at any place") {
  const test::TempFolder folder;
  std::string content(1'234'567, '\0');
  uint32_t state = 1;
  for (char& byte : content) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  const std::string path = folder.Write("weights", content);
  const auto size = static_cast<int64_t>(content.size());
  for (const bool plain : {false, true}) {
    auto reader = DirectReader::Open({path}, {.plain = plain});
    REQUIRE_OK(reader);
    REQUIRE((*reader)->uses_ring() == !plain);
    std::vector<FilePiece> pieces;
    for (int64_t i = 0; i < 200; ++i) {
      const int64_t offset = i * 6173 % size;
      pieces.push_back({.offset = offset, .bytes = std::min<int64_t>(i * 97, size - offset)});
    }
    pieces.push_back({.offset = size - 5, .bytes = 5});  // the end, which is not aligned
    int64_t room = 0;
    for (const FilePiece& piece : pieces) room += DirectReader::RoomFor(piece.bytes);
    auto* const memory = static_cast<std::byte*>(
        VirtualAlloc(nullptr, static_cast<SIZE_T>(room), MEM_COMMIT, PAGE_READWRITE));
    REQUIRE(memory != nullptr);
    std::byte* next = memory;
    for (FilePiece& piece : pieces) {
      piece.memory = next;
      next += DirectReader::RoomFor(piece.bytes);
    }
    REQUIRE_OK((*reader)->Read(pieces));
    for (const FilePiece& piece : pieces) {
      REQUIRE(std::equal(piece.data(), piece.data() + piece.bytes,
                         reinterpret_cast<const std::byte*>(content.data()) + piece.offset));
    }
    const std::vector<FilePiece> beyond = {{.offset = size - 5, .bytes = 6, .memory = memory}};
    REQUIRE_FAILS((*reader)->Read(beyond), absl::StatusCode::kDataLoss, "ends before byte");
    VirtualFree(memory, 0, MEM_RELEASE);
  }
  REQUIRE_FAILS(DirectReader::Open({folder.path()}, {}), absl::StatusCode::kInvalidArgument,
                "not a regular file");
}

TEST_CASE("advice leaves the bytes as they are, and memory is told") {
  const test::TempFolder folder;
  auto mapped = MappedFile::Open(folder.Write("a", std::string(100'000, 'x')));
  REQUIRE_OK(mapped);
  const auto* const data = mapped->bytes().data();
  AdviseWillNeed(data, 100'000);
  mapped->AdviseRandomAccess(true);
  AdviseUnneeded(data, 100'000);
  LockPages(data, 100'000);
  REQUIRE(std::count(mapped->bytes().begin(), mapped->bytes().end(), 'x') == 100'000);
  REQUIRE(AvailableMemory().value() > 0);
  REQUIRE(AvailableMemory().value() <= TotalMemory().value());
}

}  // namespace
}  // namespace dsv4
