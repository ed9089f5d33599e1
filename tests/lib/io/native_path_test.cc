// SPDX-License-Identifier: Apache-2.0
#include "lib/io/native_path.h"

#include <string>

#include "lib/io/mapped_file.h"
#include "lib/io/replaced_file.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

TEST_CASE("the folder and the name of a path") {
  REQUIRE(FolderOf("models/tiny/model.gguf") == "models/tiny");
  REQUIRE(FileNameOf("models/tiny/model.gguf") == "model.gguf");
  REQUIRE(FolderOf("model.gguf") == ".");
  REQUIRE(FileNameOf("model.gguf") == "model.gguf");
  REQUIRE(FolderOf("/model.gguf") == "/");
  REQUIRE(FileNameOf("models/").empty());
}

TEST_CASE("what is not there has no bytes") {
  REQUIRE(FileBytes("no such file") == 0);
  REQUIRE_FALSE(PathExists("no such file"));
  REQUIRE_FALSE(IsFolder("no such file"));
  REQUIRE_FALSE(PathExists("not UTF-8: \xff"));
}

// Umlaut, Chinese, an emoji beyond the 16-bit plane; the last folder lies beyond 260 characters.
TEST_CASE("files in folders of any letters and depth are written, found and read") {
  const test::TempFolder own;
  const std::string top = own.path() + "/\u00fc\u6a21\U0001F600";
  std::string folder = top;
  for (int i = 0; i < 3; ++i) folder += "/" + std::string(100, static_cast<char>('a' + i));
  std::filesystem::create_directories(NativePath(folder));
  REQUIRE(IsFolder(folder));
  for (const std::string& in : {top, folder}) {
    const std::string path = in + "/\u0159.bin";
    {
      absl::StatusOr<ReplacedFile> written = ReplacedFile::Create(path, 3);
      REQUIRE_OK(written);
      written->bytes()[0] = 'd';
      REQUIRE_OK(written->Commit());
    }
    REQUIRE(FileBytes(path) == 3);
    const absl::StatusOr<MappedFile> mapped = MappedFile::Open(path);
    REQUIRE_OK(mapped);
    REQUIRE(mapped->bytes()[0] == 'd');
    const absl::StatusOr<std::string> read = ReadFile(path, 3);
    REQUIRE_OK(read);
    REQUIRE(*read == std::string("d\0\0", 3));
  }
  // Beyond 260 characters mingw-w64 lists nothing on Windows.
  bool listed = false;
  for (const auto& entry : std::filesystem::directory_iterator(NativePath(top))) {
    listed = listed || TextOf(entry.path().filename()) == "\u0159.bin";
  }
  REQUIRE(listed);
  std::filesystem::remove(NativePath(folder + "/\u0159.bin"));
  for (; folder != top; folder = FolderOf(folder)) std::filesystem::remove(NativePath(folder));
  REQUIRE_FALSE(PathExists(top + "/" + std::string(100, 'a')));
}

}  // namespace
}  // namespace dsv4
