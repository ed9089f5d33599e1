// SPDX-License-Identifier: Apache-2.0
#include "lib/io/mapped_file.h"

#include <sys/stat.h>

#include <utility>

#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::TempFolder;

std::string Text(absl::Span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

TEST_CASE("a mapped file has the file's bytes, also after a move") {
  const TempFolder folder;
  auto mapped = MappedFile::Open(folder.Write("a", "seven\0x"));
  REQUIRE_OK(mapped);
  CHECK(mapped->path() == folder.File("a"));
  MappedFile moved = std::move(*mapped);
  CHECK(Text(moved.bytes()) == "seven");
  auto other = MappedFile::Open(folder.Write("b", "other"));
  REQUIRE_OK(other);
  moved = std::move(*other);
  CHECK(Text(moved.bytes()) == "other");
  CHECK(moved.path() == folder.File("b"));
}

TEST_CASE("an empty file maps to no bytes") {
  const TempFolder folder;
  const auto mapped = MappedFile::Open(folder.Write("empty", ""));
  REQUIRE_OK(mapped);
  CHECK(mapped->bytes().empty());
}

TEST_CASE("what cannot be mapped is refused by its path") {
  const TempFolder folder;
  REQUIRE_FAILS(MappedFile::Open(folder.File("nothing")), absl::StatusCode::kNotFound,
                folder.File("nothing") + ": no such file");
  REQUIRE_FAILS(MappedFile::Open(folder.path()), absl::StatusCode::kInvalidArgument,
                folder.path() + ": not a regular file");
  REQUIRE(mkfifo(folder.File("pipe").c_str(), 0600) == 0);
  REQUIRE_FAILS(MappedFile::Open(folder.File("pipe")), absl::StatusCode::kInvalidArgument,
                "not a regular file");
  REQUIRE_FAILS(MappedFile::Open(std::string("a\0b", 3)), absl::StatusCode::kInvalidArgument,
                "NUL byte after \"a\"");
  REQUIRE_FAILS(MappedFile::Open(folder.Write("file", "x") + "/inside"),
                absl::StatusCode::kNotFound, "no such file");
  REQUIRE_FAILS(MappedFile::Open(folder.File(std::string(5000, 'n'))),
                absl::StatusCode::kUnavailable, "File name too long");
}

TEST_CASE("ReadFile reads whole files up to its limit") {
  const TempFolder folder;
  const std::string path = folder.Write("text", std::string("a\0b\n", 4));
  const auto text = ReadFile(path, 4);
  REQUIRE_OK(text);
  CHECK(*text == std::string("a\0b\n", 4));
  REQUIRE_FAILS(ReadFile(path, 3), absl::StatusCode::kDataLoss,
                path + ": has 4 bytes; at most 3 are read");
  REQUIRE_FAILS(ReadFile(folder.File("nothing"), 3), absl::StatusCode::kNotFound, "no such file");
}

}  // namespace
}  // namespace dsv4
