// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_profile.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <type_traits>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/mapped_file.h"
#include "lib/io/replaced_file.h"

namespace dsv4 {
namespace {

constexpr char kMagic[8] = {'D', 'S', 'V', '4', 'E', 'X', 'P', 'R'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kMostBlocks = 4096, kMostExperts = 65536;
constexpr int64_t kMostFileBytes = int64_t{64} << 20;
// All numbers of a profile with more passes are halved.
constexpr uint64_t kMostPasses = uint64_t{1} << 20;

struct Header {
  char magic[8];
  uint32_t version, header_bytes;
  ContentHash checkpoint;
  uint64_t passes;
  int64_t blocks, experts;
  uint64_t zero;
};
static_assert(sizeof(Header) == 64 && std::has_unique_object_representations_v<Header>);

}  // namespace

absl::StatusOr<ExpertProfile> ReadExpertProfile(const std::string& path,
                                                const ContentHash& checkpoint) {
  DSV4_ASSIGN_OR_RETURN(const std::string file, ReadFile(path, kMostFileBytes));
  Header header;
  ContentHash checksum;
  if (file.size() < sizeof header + sizeof checksum) {
    return Corrupt(path, ": ", file.size(), " bytes are too few for an expert profile");
  }
  std::memcpy(&header, file.data(), sizeof header);
  if (!std::equal(std::begin(kMagic), std::end(kMagic), header.magic)) {
    return Corrupt(path, ": not an expert profile");
  }
  if (header.version != kVersion) {
    return VersionMismatch(path, ": an expert profile of format ", header.version,
                           "; this library reads format ", kVersion);
  }
  const size_t hashed = file.size() - sizeof checksum;
  std::memcpy(&checksum, file.data() + hashed, sizeof checksum);
  if (checksum != HashOf(absl::string_view(file).substr(0, hashed))) {
    return Corrupt(path, ": the expert profile is damaged: its checksum does not match");
  }
  if (header.header_bytes != sizeof header || header.blocks < 1 || header.blocks > kMostBlocks ||
      header.experts < 1 || header.experts > kMostExperts ||
      sizeof header + static_cast<size_t>(header.blocks * header.experts) * sizeof(uint64_t) !=
          hashed) {
    return Corrupt(path, ": holds ", file.size(), " bytes of an expert profile of ", header.blocks,
                   " layers of ", header.experts, " experts");
  }
  if (header.checkpoint != checkpoint) {
    return VersionMismatch(path, ": an expert profile of another model's weights");
  }
  ExpertProfile profile{header.blocks, header.experts, header.passes, {}};
  profile.calls.resize(static_cast<size_t>(header.blocks * header.experts));
  std::memcpy(profile.calls.data(), file.data() + sizeof header,
              profile.calls.size() * sizeof(uint64_t));
  return profile;
}

absl::Status WriteExpertProfile(const std::string& path, const ContentHash& checkpoint,
                                const ExpertProfile& profile) {
  Header header{.magic = {},
                .version = kVersion,
                .header_bytes = sizeof header,
                .checkpoint = checkpoint,
                .passes = profile.passes,
                .blocks = profile.blocks,
                .experts = profile.experts,
                .zero = 0};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  const size_t calls = profile.calls.size() * sizeof(uint64_t);
  DSV4_ASSIGN_OR_RETURN(ReplacedFile file,
                        ReplacedFile::Create(path, static_cast<int64_t>(sizeof header + calls +
                                                                        sizeof(ContentHash))));
  uint8_t* const to = file.bytes().data();
  std::memcpy(to, &header, sizeof header);
  std::memcpy(to + sizeof header, profile.calls.data(), calls);
  const ContentHash checksum = HashOf(file.bytes().subspan(0, sizeof header + calls));
  std::memcpy(to + sizeof header + calls, &checksum, sizeof checksum);
  return file.Commit();
}

std::vector<int64_t> PlacesByUse(const ResidencyPlan& plan, const ExpertProfile& profile) {
  const auto place = [&](size_t index) {
    const auto experts = static_cast<size_t>(plan.experts);
    return static_cast<int64_t>(index % experts) * plan.blocks +
           static_cast<int64_t>(index / experts);
  };
  std::vector<size_t> order(profile.calls.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (profile.calls[a] != profile.calls[b]) return profile.calls[a] > profile.calls[b];
    return place(a) < place(b);
  });
  // The places of each class, one after the other.
  std::vector<std::vector<int64_t>> free(static_cast<size_t>(plan.class_count()));
  const auto class_of = [&](int64_t block) { return static_cast<size_t>(plan.ClassOf(block)); };
  for (int64_t i = plan.all() - 1; i >= 0; --i) free[class_of(i % plan.blocks)].push_back(i);
  std::vector<int64_t> places(order.size());
  for (const size_t index : order) {
    std::vector<int64_t>& own = free[class_of(static_cast<int64_t>(index) / plan.experts)];
    places[index] = own.back();
    own.pop_back();
  }
  return places;
}

ExpertUse::ExpertUse(int64_t blocks, int64_t experts, ExpertProfile before)
    : before_(before.calls.empty()
                  ? ExpertProfile{blocks, experts, 0,
                                  std::vector<uint64_t>(static_cast<size_t>(blocks * experts))}
                  : std::move(before)),
      calls_(before_.calls.size()) {}

float ExpertUse::ShareBefore(size_t index) const {
  return before_.passes == 0
             ? 0
             : static_cast<float>(before_.calls[index]) / static_cast<float>(before_.passes);
}

ExpertProfile ExpertUse::Total() const {
  ExpertProfile total = before_;
  total.passes += passes_.load();
  for (size_t i = 0; i < calls_.size(); ++i) total.calls[i] += calls_[i].load();
  for (; total.passes > kMostPasses; total.passes /= 2) {
    for (uint64_t& calls : total.calls) calls /= 2;
  }
  return total;
}

}  // namespace dsv4
