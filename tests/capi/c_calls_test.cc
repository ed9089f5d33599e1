// SPDX-License-Identifier: Apache-2.0
// usage: c_calls_test CORPUS_FOLDER SECONDS
// The fuzz target of fuzz/fuzz_c_calls.cc without a fuzzer: the inputs of its corpus, and random
// ones of a fixed seed until the time is over. Prints nothing; a finding ends it with a signal.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<uint8_t> ContentOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    const std::vector<uint8_t> input = ContentOf(entry.path());
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++inputs;
  }
  if (inputs == 0) {
    std::printf("%s holds no input\n", argv[1]);
    return 1;
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(std::atoi(argv[2]));
  std::mt19937 random(20240611);
  for (size_t round = 0; round < 200 || Clock::now() < end; ++round) {
    std::vector<uint8_t> input(random() % 400);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return 0;
}
