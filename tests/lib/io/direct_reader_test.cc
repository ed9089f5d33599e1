// SPDX-License-Identifier: Apache-2.0
#include "lib/io/direct_reader.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/io/system_memory.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::TempFolder;

std::string Pattern(size_t bytes) {
  std::string text(bytes, '\0');
  uint32_t state = 7;
  for (char& c : text) c = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return text;
}

// Memory for pieces, at page boundaries.
class Room {
 public:
  explicit Room(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
  }
  ~Room() { munmap(memory_, bytes_); }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  size_t bytes_;
  void* memory_;
};

TEST_CASE("pieces of files are read wherever they begin and end, by a ring and without") {
  const TempFolder folder;
  const std::string first = Pattern(300'001), second = Pattern(5);
  const std::vector<std::string> paths = {folder.Write("first", first),
                                          folder.Write("second", second)};
  for (const bool plain : {false, true}) {
    INFO((plain ? "plain" : "by a ring"));
    const auto reader = DirectReader::Open(paths, {.plain = plain});
    REQUIRE_OK(reader);
    if (plain) REQUIRE(!(*reader)->uses_ring());
    std::vector<FilePiece> pieces;
    for (const auto& [offset, bytes] :
         {std::pair<int64_t, int64_t>{0, 1}, {4095, 2}, {8192, 4096}, {1, 300'000}, {299'999, 2}}) {
      pieces.push_back({.file = 0, .offset = offset, .bytes = bytes});
    }
    // More than are under way at once.
    for (int64_t i = 0; i < 150; ++i)
      pieces.push_back({.file = 0, .offset = 997 * i, .bytes = 999});
    pieces.push_back({.file = 1, .offset = 3, .bytes = 2});
    pieces.push_back({.file = 1, .offset = 0, .bytes = 0});
    int64_t room = 0;
    for (const FilePiece& piece : pieces) room += DirectReader::RoomFor(piece.bytes);
    const Room memory(room);
    std::byte* at = memory.data();
    for (FilePiece& piece : pieces) {
      piece.memory = at;
      at += DirectReader::RoomFor(piece.bytes);
    }
    REQUIRE_OK((*reader)->Read(pieces));
    for (const FilePiece& piece : pieces) {
      const std::string& text = piece.file == 0 ? first : second;
      REQUIRE(std::memcmp(piece.data(), text.data() + piece.offset,
                          static_cast<size_t>(piece.bytes)) == 0);
    }
  }
}

TEST_CASE("a file that is missing or has become shorter is named") {
  const TempFolder folder;
  REQUIRE(absl::IsNotFound(DirectReader::Open({folder.File("none")}, {}).status()));
  const std::string path = folder.Write("file", Pattern(20'000));
  for (const bool plain : {false, true}) {
    folder.Write("file", Pattern(20'000));
    const auto reader = DirectReader::Open({path}, {.plain = plain});
    REQUIRE_OK(reader);
    const Room memory(2 * DirectReader::RoomFor(10'000));
    const FilePiece pieces[] = {{0, 0, 10'000, memory.data()},
                                {0, 9'000, 10'000, memory.data() + DirectReader::RoomFor(10'000)}};
    REQUIRE_OK((*reader)->Read(pieces));
    std::filesystem::resize_file(path, 15'000);
    const absl::Status status = (*reader)->Read(pieces);
    REQUIRE(IsCorrupt(status));
    REQUIRE_THAT(std::string(status.message()), Catch::Contains(path) &&
                                                    Catch::Contains("byte 19000") &&
                                                    Catch::Contains("shorter"));
    // What is left can still be read.
    REQUIRE_OK((*reader)->Read({pieces, 1}));
  }
}

TEST_CASE("available memory is the system's, or less where a control group limits it") {
  const TempFolder root;
  REQUIRE(!AvailableMemory(root.path()));
  std::filesystem::create_directories(root.File("proc"));
  std::filesystem::create_directories(root.File("sys/fs/cgroup"));
  root.Write("proc/meminfo", "MemTotal:  99 kB\nMemAvailable:    40 kB\nBuffers: 3 kB\n");
  REQUIRE(AvailableMemory(root.path()) == 40 * 1024);
  root.Write("sys/fs/cgroup/memory.max", "max\n");
  root.Write("sys/fs/cgroup/memory.current", "7000\n");
  REQUIRE(AvailableMemory(root.path()) == 40 * 1024);
  root.Write("sys/fs/cgroup/memory.max", "20000\n");
  REQUIRE(AvailableMemory(root.path()) == 13000);
  root.Write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 500\nactive_file 1500\n");
  REQUIRE(AvailableMemory(root.path()) == 15000);
  REQUIRE(AvailableMemory() > 0);
}

}  // namespace
}  // namespace dsv4
