// SPDX-License-Identifier: Apache-2.0
#include "lib/io/replaced_file.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "lib/io/mapped_file.h"
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

int64_t FilesIn(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

TEST_CASE("a replaced file appears when it is complete, over the old one") {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/file";
  {
    absl::StatusOr<ReplacedFile> file = ReplacedFile::Create(path, kBytes);
    REQUIRE_OK(file);
    REQUIRE(file->bytes().size() == kBytes);
    REQUIRE_FALSE(std::filesystem::exists(path));
  }
  REQUIRE(FilesIn(folder.path()) == 0);  // without Commit, nothing is left

  REQUIRE_OK(Write(path, 'a'));
  REQUIRE_OK(Write(path, 'b'));
  REQUIRE(FilesIn(folder.path()) == 1);
  const absl::StatusOr<std::string> content = ReadFile(path, kBytes);
  REQUIRE_OK(content);
  REQUIRE(*content == std::string(kBytes, 'b'));
  struct stat info;
  REQUIRE(stat(path.c_str(), &info) == 0);
  REQUIRE((info.st_mode & 0777) == 0600);
}

TEST_CASE("a replaced file says why it cannot be made") {
  const test::TempFolder folder;
  REQUIRE_FAILS(Write(folder.path() + "/missing/file", 'a'), absl::StatusCode::kNotFound,
                "missing/file");
  REQUIRE_FAILS(Write(std::string("a\0b", 3), 'a'), absl::StatusCode::kInvalidArgument, "NUL");
  // Far more than a disk holds: the error comes before anything is written.
  const std::string large = folder.path() + "/large";
  REQUIRE_FAILS(ReplacedFile::Create(large, int64_t{1} << 60), absl::StatusCode::kUnavailable,
                "large");
  std::filesystem::create_directory(folder.path() + "/taken");
  REQUIRE_FAILS(Write(folder.path() + "/taken", 'a'), absl::StatusCode::kInvalidArgument,
                "not a regular file");
  REQUIRE(FilesIn(folder.path()) == 1);
}

TEST_CASE("a killed writer leaves the old file or the new one") {
  const test::TempFolder folder;
  const std::string path = folder.path() + "/file";
  REQUIRE_OK(Write(path, 'a'));
  int replaced = 0;
  for (int round = 0; round < 50; ++round) {
    const char fill = static_cast<char>('b' + round % 20);
    const pid_t writer = fork();
    REQUIRE(writer >= 0);
    if (writer == 0) _exit(Write(path, fill).ok() ? 0 : 1);
    usleep(static_cast<useconds_t>(round * 60));
    kill(writer, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(writer, &status, 0) == writer);
    const absl::StatusOr<std::string> content = ReadFile(path, kBytes);
    REQUIRE_OK(content);
    REQUIRE(*content == std::string(kBytes, content->front()));
    if (content->front() == fill) ++replaced;
  }
  INFO(replaced << " of 50 were replaced");
  REQUIRE(replaced < 50);
}

}  // namespace
}  // namespace dsv4
