// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_profile.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr ContentHash kCheckpoint{.low = 5, .high = 9};

std::string Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// With a checksum that is right.
std::string Sealed(std::string bytes) {
  const size_t hashed = bytes.size() - sizeof(ContentHash);
  const ContentHash hash = HashOf(absl::string_view(bytes).substr(0, hashed));
  std::memcpy(bytes.data() + hashed, &hash, sizeof hash);
  return bytes;
}

TEST_CASE("a profile is read as it was written, and broken or foreign ones are refused by name") {
  const test::TempFolder folder;
  const std::string path = folder.File("profile");
  REQUIRE(absl::IsNotFound(ReadExpertProfile(path, kCheckpoint).status()));
  const ExpertProfile written{2, 3, 7, {1, 2, 3, 4, 5, 6}};
  REQUIRE_OK(WriteExpertProfile(path, kCheckpoint, written));
  const auto read = ReadExpertProfile(path, kCheckpoint);
  REQUIRE_OK(read);
  REQUIRE(read->blocks == 2);
  REQUIRE(read->experts == 3);
  REQUIRE(read->passes == 7);
  REQUIRE(read->calls == written.calls);
  const std::string whole = Bytes(path);
  // The header, six counts and the checksum, as the header of expert_profile.h lays them out.
  REQUIRE(whole.size() == 64 + 6 * 8 + 16);
  REQUIRE(whole.substr(0, 8) == "DSV4EXPR");
  REQUIRE(whole[32] == 7);
  REQUIRE(whole[64 + 5 * 8] == 6);
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    Write(path, bytes);
    const absl::Status status = ReadExpertProfile(path, kCheckpoint).status();
    REQUIRE_THAT(std::string(status.message()), Catch::Contains(path) && Catch::Contains(what));
    REQUIRE(Bytes(path) == bytes);
    return status;
  };
  for (size_t at = 0; at < whole.size(); at += 5) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    REQUIRE_FALSE(refused(damaged, at < 8    ? "not an expert profile"
                                   : at < 12 ? "format"
                                             : "damaged")
                      .ok());
  }
  REQUIRE(IsCorrupt(refused("", "too few")));
  REQUIRE(IsCorrupt(refused(whole.substr(0, whole.size() - 1), "damaged")));
  std::string other = whole;
  other[16] = 6;
  REQUIRE(IsVersionMismatch(refused(Sealed(other), "another model's weights")));
  other = whole;
  other[8] = 2;
  REQUIRE(IsVersionMismatch(refused(Sealed(other), "format 2")));
  other = whole;
  other[40] = 3;
  REQUIRE(IsCorrupt(refused(Sealed(other), "3 layers of 3 experts")));
  Write(path, whole);
  REQUIRE_FALSE(WriteExpertProfile(folder.File("none/profile"), kCheckpoint, written).ok());
}

TEST_CASE("experts that were used most come first, the others as without a profile") {
  const ResidencyPlan plan{.blocks = 2, .experts = 3};
  // Without a profile: block 0's first, block 1's first, block 0's second, ...
  const std::vector<int64_t> places = PlacesByUse(plan, {2, 3, 10, {0, 9, 0, 4, 0, 9}});
  REQUIRE(places == std::vector<int64_t>{3, 0, 5, 2, 4, 1});
  // Experts of two sizes: each block keeps its places, every second one.
  const ResidencyPlan sizes{.blocks = 2, .experts = 3, .classes = {{}, {}}, .class_of = {0, 1}};
  REQUIRE(PlacesByUse(sizes, {2, 3, 10, {0, 9, 0, 4, 0, 9}}) ==
          std::vector<int64_t>{2, 0, 4, 3, 5, 1});
}

TEST_CASE("use is counted on top of a profile, and long histories fade") {
  ExpertUse none(1, 2, {});
  REQUIRE(none.ShareBefore(1) == 0);
  none.AddPasses(3);
  none.Add(1, 2);
  REQUIRE(none.Total().passes == 3);
  REQUIRE(none.Total().calls == std::vector<uint64_t>{0, 2});
  ExpertUse more(1, 2, {1, 2, 1 << 20, {0, 1 << 19}});
  REQUIRE(more.ShareBefore(1) == 0.5f);
  more.Add(1, 1);
  REQUIRE(more.Total().calls[1] == (1 << 19) + 1);
  more.AddPasses(2);
  REQUIRE(more.Total().passes == (1 << 19) + 1);
  REQUIRE(more.Total().calls[1] == 1 << 18);
}

}  // namespace
}  // namespace dsv4
