// SPDX-License-Identifier: Apache-2.0
// What stands for a GPU: that it finds mistakes that are there, and none where there are none.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>

#include "lib/tensor/quant_format.h"
#include "tests/emulation/matrix_products.h"
#include "tests/emulation/planted_kernels.h"
#include "tests/kernels/random_weights.h"
#include "tests/support/catch.h"
#include "tests/support/worst_element.h"

namespace dsv4::emulation {
namespace {

// What `f` prints to stderr in a process of its own that does not outlive it; "" where it does.
template <class F>
std::string LastWords(F f) {
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    // Else Catch2 reports the signal.
    for (const int number : {SIGABRT, SIGSEGV}) signal(number, SIG_DFL);
    f();
    _exit(0);
  }
  close(pipes[1]);
  std::string words;
  char buffer[512];
  for (ssize_t n; (n = read(pipes[0], buffer, sizeof buffer)) > 0;) {
    words.append(buffer, static_cast<size_t>(n));
  }
  close(pipes[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return "";
  return "signal " + std::to_string(WTERMSIG(status)) + ": " + words;
}

std::vector<int> Neighbours(int threads, int of) {
  std::vector<int> expected;
  for (int i = 0; i < threads; ++i) expected.push_back(i / of * of + (i + 1) % of);
  return expected;
}

}  // namespace

TEST_CASE("emulated threads that wait for each other see what the others wrote") {
  for (const bool dynamic : {false, true}) {
    for (const int threads : {32, 64, 1024}) {
      INFO(threads << " threads, dynamic " << dynamic);
      REQUIRE(ReadNeighbours(threads, Between::kBlock, dynamic) == Neighbours(threads, threads));
      REQUIRE(ReadNeighbours(threads, Between::kNamed, dynamic) == Neighbours(threads, threads));
      REQUIRE(ReadNeighbours(threads, Between::kLanes, dynamic) == Neighbours(threads, 32));
    }
  }
  WriteWhatOthersRead(true);
  WriteTogether(true);
  WriteByteOfWord(Reads::kOtherByte);
  REQUIRE(AddTogether(96) == 96);
}

TEST_CASE("threads that do not wait for each other are found") {
  for (const bool dynamic : {false, true}) {
    for (const int threads : {32, 64}) {
      const std::string words =
          LastWords([&] { ReadNeighbours(threads, Between::kNothing, dynamic); });
      INFO(threads << " threads: " << words);
      REQUIRE(words.find(dynamic ? "dynamic shared" : "static shared") != std::string::npos);
    }
  }
  const std::string by_lanes = LastWords([] { ReadNeighbours(64, Between::kLanesOnly, true); });
  INFO(by_lanes);
  REQUIRE(by_lanes.find("dynamic shared") != std::string::npos);
  REQUIRE(LastWords([] { WriteWhatOthersRead(false); }).find("while thread") != std::string::npos);
  REQUIRE(LastWords([] { WriteTogether(false); }).find("while thread") != std::string::npos);
  for (const Reads reads : {Reads::kSameByte, Reads::kWord}) {
    REQUIRE(LastWords([&] { WriteByteOfWord(reads); }).find("byte 2;") != std::string::npos);
  }
}

TEST_CASE("emulated memory that was not written or waited for has NaNs") {
  REQUIRE(ReadUnwritten() == 0xffffffffu);
  REQUIRE(ReadCopy(false) == 0xffffffffu);
  REQUIRE(ReadCopy(true) == 3);
}

TEST_CASE("stages that go through mbarriers are there, and not overwritten too soon") {
  const std::vector<uint32_t> read = PassStages(HandOver::kRight);
  for (uint32_t i = 0; i < read.size(); ++i) {
    // Words are numbered; a stage has 64 times four.
    const uint32_t first = (i + 32) % 64 * 4 + 1;
    REQUIRE(read[i] == 3 * first + (1 + 2) * 64 * 4);
  }
  const auto words_have = [](HandOver how, const char* text) {
    const std::string words = LastWords([how] { PassStages(how); });
    INFO(words);
    REQUIRE(words.find(text) != std::string::npos);
  };
  words_have(HandOver::kNoWait, "dynamic shared");
  words_have(HandOver::kNoReaders, "dynamic shared");
  words_have(HandOver::kNoLanes, "dynamic shared");
  words_have(HandOver::kNoArrival,
             "threads wait at the mbarrier at byte 0, where 63 of 64 have arrived");
  words_have(HandOver::kNoEnd, "a block ends while its copies are under way");
}

TEST_CASE("blocks that wait for each other all run") {
  for (const unsigned blocks : {1u, 2u, 7u}) {
    const std::vector<uint32_t> read = HandWordsAround(blocks, false);
    for (uint32_t i = 0; i < read.size(); ++i) {
      const uint32_t self = i % 64, second = self / 4 * 4 + 1;
      REQUIRE(read[i] == (second ^ 1) + 1 + self);
    }
  }
  const std::string words = LastWords([] { HandWordsAround(4, true); });
  INFO(words);
  REQUIRE(words.find("all blocks wait for each other") != std::string::npos);
}

TEST_CASE("what would hang a GPU or break it ends the program") {
  const auto words_have = [](void (*f)(), const char* text) {
    const std::string words = LastWords(f);
    INFO(words);
    REQUIRE(words.find(text) != std::string::npos);
  };
  words_have(HalfAWarpWaits, "lanes 0000ffff of ffffffff wait for the others at __syncwarp");
  words_have(LanesAtDifferentInstructions, "lanes of a warp at different instructions");
  words_have(SomeThreadsAtABarrier, "32 threads wait at barrier 2");
  words_have(WriteBehindSharedMemory, "signal 11");
}

// The sum of a product of 1 and `count` products of two 2^-`low`, in f16.
float SumOfOneAndSmall(const MmaModel& model, int count, int low) {
  SetMmaModel(model);
  MmaGive give[32] = {};
  MmaGet get[32] = {};
  const auto half = [](int exponent) { return static_cast<uint32_t>((exponent + 15) << 10); };
  // Row 0 and column 0: lanes 0 to 3, two places in each of two words.
  for (int k = 0; k <= count; ++k) {
    const int lane = k % 8 / 2, word = k / 8, place = k % 2;
    const uint32_t value = half(k == 0 ? 0 : -low) << 16 * place;
    give[lane].a[2 * word] |= value;
    give[lane].b[word] |= value;
  }
  MultiplyTiles(MmaType::kF16, 0, give, get);
  SetMmaModel({});
  return get[0].d[0];
}

TEST_CASE("sums of tensor cores are cut as the model says") {
  // 8 products of 2^-26 are 2^-23, the last bit of f32.
  const float more = 1 + 0x1p-23f;
  CHECK(SumOfOneAndSmall({}, 8, 13) == more);
  CHECK(SumOfOneAndSmall(kRtxBlackwell, 8, 13) == 1);
  CHECK(SumOfOneAndSmall({.fraction_bits = 26}, 8, 13) == more);
  // 2 of 2^-24 stay with 25 bits, not with 13; 1 is cut with the result.
  CHECK(SumOfOneAndSmall(kRtxBlackwell, 2, 12) == more);
  CHECK(SumOfOneAndSmall({.fraction_bits = 13}, 2, 12) == 1);
  CHECK(SumOfOneAndSmall(kRtxBlackwell, 1, 12) == 1);
  CHECK(SumOfOneAndSmall(kRtxBlackwell, 3, 12) == more);  // to nearest would be 2 bits more
  CHECK(SumOfOneAndSmall({}, 3, 12) == 1 + 0x1p-22f);
}

float Int8Value(uint32_t code) { return static_cast<int8_t>(code); }

TEST_CASE("emulated matrix products are those of their matrices") {
  struct Type {
    ProductType type;
    int width, codes;
    float (*value)(uint32_t);
  };
  // Small integers and simple fractions: every sum is exact.
  const Type types[] = {
      {ProductType::kBf16, 16, 5, [](uint32_t code) { return std::bit_cast<float>(code << 16); }},
      {ProductType::kF16, 16, 5,
       [](uint32_t code) {
         return code == 0 ? 0.0f
                          : std::ldexp(1 + static_cast<float>(code & 1023) / 1024,
                                       static_cast<int>(code >> 10 & 31) - 15);
       }},
      {ProductType::kE4M3, 32, 127,
       [](uint32_t code) { return E4M3ToFloat(static_cast<uint8_t>(code)); }},
      {ProductType::kE2M1, 32, 16,
       [](uint32_t code) {
         constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
         return std::copysign(kMagnitudes[code >> 2 & 7], (code & 0x20) != 0 ? -1.0f : 1.0f);
       }},
      {ProductType::kInt8, 32, 256, &Int8Value},
      {ProductType::kInt8K16, 16, 256, &Int8Value},
  };
  for (const Type& type : types) {
    INFO("type " << static_cast<int>(type.type));
    const bool scaled = type.type == ProductType::kE4M3 || type.type == ProductType::kE2M1;
    const bool int8 = type.type == ProductType::kInt8 || type.type == ProductType::kInt8K16;
    uint64_t drawn = 0;
    const auto draw = [&](uint32_t count) {
      const float value = (test::RandomValue(5, drawn++) + 1) / 2;
      return static_cast<uint32_t>(value * static_cast<float>(count)) % count;
    };
    const auto code_of = [&](bool of_a) -> uint32_t {
      if (type.type == ProductType::kBf16)
        return std::bit_cast<uint32_t>(static_cast<float>(draw(9)) - 4) >> 16;
      if (type.type == ProductType::kF16)
        return draw(2) == 0 ? 0 : (14 + draw(3)) << 10 | draw(4) << 8;
      if (int8) return draw(256);
      // Between 2^-3 and 2^4, of either sign.
      if (type.type == ProductType::kE4M3 || !of_a) return (draw(2) << 7) | (32 + draw(56));
      return draw(16) << 2;
    };
    Product product;
    for (int i = 0; i < 16 * type.width; ++i) product.a.push_back(code_of(true));
    for (int i = 0; i < 8 * type.width; ++i) product.b.push_back(code_of(false));
    for (int i = 0; i < 16; ++i) product.a_scales.push_back(static_cast<uint8_t>(124 + draw(6)));
    for (int i = 0; i < 8; ++i) product.b_scales.push_back(static_cast<uint8_t>(124 + draw(6)));
    for (int i = 0; i < 16 * 8; ++i) product.c.push_back(static_cast<float>(draw(64)));
    const std::vector<float> got = Multiply(type.type, product);
    const Type& of_b = type.type == ProductType::kE2M1 ? types[2] : type;
    std::vector<float> want;
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        double sum = 0;
        for (int k = 0; k < type.width; ++k) {
          sum += double{type.value(product.a[static_cast<size_t>(row * type.width + k)])} *
                 of_b.value(product.b[static_cast<size_t>(k * 8 + column)]);
        }
        if (scaled) {
          sum = std::ldexp(sum, product.a_scales[static_cast<size_t>(row)] +
                                    product.b_scales[static_cast<size_t>(column)] - 2 * 127);
        }
        want.push_back(static_cast<float>(sum + product.c[int8 ? 0 : want.size()]));
      }
    }
    INFO("rows of 8 columns");
    REQUIRE(test::FarElements(got, want) == "");
  }
}

}  // namespace dsv4::emulation
