// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/options.h"

#include "examples/console/failure.h"
#include "tests/support/catch.h"

namespace bench {
namespace {

using Tokens = std::vector<int64_t>;

Options Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), {"dsv4-bench", "-m", "DIR"});
  return ParseOptions(static_cast<int>(arguments.size()), arguments.data());
}

// The message with which arguments are refused, as a fault of usage.
std::string Refusal(const std::vector<const char*>& arguments) {
  try {
    Parse(arguments);
  } catch (const chat::Failure& failure) {
    REQUIRE(failure.exit_code == chat::kUsageError);
    return failure.message;
  }
  return "accepted";
}

TEST_CASE("without options: a prompt of 512 and 128 tokens generated, five times") {
  const Options options = Parse({});
  REQUIRE(options.models == std::vector<std::string>{"DIR"});
  REQUIRE(options.prompts == Tokens{512});
  REQUIRE(options.generations == Tokens{128});
  REQUIRE(options.depths == Tokens{0});
  REQUIRE(options.prompts_with_generation.empty());
  REQUIRE(options.repetitions == 5);
  REQUIRE(options.warmup);
  REQUIRE(options.drafts == std::vector<int32_t>{0});
  REQUIRE(options.temperatures == std::vector<float>{0});
  REQUIRE(options.format == Format::kMarkdown);
  REQUIRE_FALSE(options.serve);
}

TEST_CASE("lists are values and ranges, and several lists are one") {
  REQUIRE(Parse({"-p", "1,2,3"}).prompts == Tokens{1, 2, 3});
  REQUIRE(Parse({"-p", "1", "-p", "2,7"}).prompts == Tokens{1, 2, 7});
  REQUIRE(Parse({"-d", "2-5"}).depths == Tokens{2, 3, 4, 5});
  REQUIRE(Parse({"-d", "0-4096+1024"}).depths == Tokens{0, 1024, 2048, 3072, 4096});
  REQUIRE(Parse({"-d", "0-5+2"}).depths == Tokens{0, 2, 4});
  REQUIRE(Parse({"-d", "2048-16384*2,9"}).depths == Tokens{2048, 4096, 8192, 16384, 9});
  REQUIRE(Parse({"-d", "3-20*2"}).depths == Tokens{3, 6, 12});
  REQUIRE(Parse({"--n-depth=7"}).depths == Tokens{7});
  REQUIRE(Parse({"--temp", "0,0.5"}).temperatures == std::vector<float>{0, 0.5f});
  REQUIRE(Parse({"--tuning", "tables"}).tuning_dir == "tables");
  REQUIRE(Parse({"--cache-format", "packed,bf16"}).cache_formats ==
          std::vector<std::string>{"packed", "bf16"});
  REQUIRE(Parse({"--backend", "cpu,reference,cuda"}).backends ==
          std::vector<dsv4_backend>{DSV4_BACKEND_CPU, DSV4_BACKEND_REFERENCE, DSV4_BACKEND_CUDA});
  REQUIRE(Parse({"--numerics", "exact"}).numerics == std::vector<std::string>{"exact"});
  REQUIRE(Parse({"-o", "jsonl"}).format == Format::kJsonLines);
}

TEST_CASE("prompts with generation stand alone unless -p or -n is given") {
  const Options alone = Parse({"-pg", "512,128", "-pg", "16,4"});
  REQUIRE(alone.prompts_with_generation ==
          std::vector<std::pair<int64_t, int64_t>>{{512, 128}, {16, 4}});
  REQUIRE(alone.prompts.empty());
  REQUIRE(alone.generations.empty());
  const Options with = Parse({"-pg", "512,128", "-p", "64"});
  REQUIRE(with.prompts == Tokens{64});
  REQUIRE(with.generations == Tokens{128});
}

TEST_CASE("what is wrong is named, with its value and what is expected") {
  REQUIRE(Refusal({"-x"}) == "unknown option -x");
  REQUIRE(Refusal({"--frobnicate=3"}) == "unknown option --frobnicate");
  REQUIRE(Refusal({"stray"}) == "unexpected argument \"stray\"");
  REQUIRE(Refusal({"-p"}) == "-p needs a value: N,...");
  REQUIRE(Refusal({"--no-warmup=1"}) == "--no-warmup takes no value, but has \"1\"");
  REQUIRE(Refusal({"-p", ""}) == "-p: \"\" is not a whole number of 0 or more");
  REQUIRE(Refusal({"-p", "1,,2"}) == "-p: \"\" is not a whole number of 0 or more");
  REQUIRE(Refusal({"-p", "12x"}) == "-p: \"12x\" is not a whole number of 0 or more");
  REQUIRE(Refusal({"-p", "-1"}) == "-p: \"-1\" is not a whole number of 0 or more");
  REQUIRE(Refusal({"-p", "1e9"}) == "-p: \"1e9\" is not a whole number of 0 or more");
  REQUIRE(Refusal({"-p", "99999999999999999999"}) ==
          "-p: \"99999999999999999999\" is not a whole number of 0 or more");
  REQUIRE(Refusal({"-d", "5-2"}) == "-d: \"5-2\" is not a range upwards");
  REQUIRE(Refusal({"-d", "1-9+0"}) == "-d: \"0\" is not a whole number of 1 or more");
  REQUIRE(Refusal({"-d", "1-9*1"}) == "-d: \"1\" is not a whole number of 2 or more");
  REQUIRE(Refusal({"-d", "0-9*2"}) ==
          "-d: \"0-9*2\" is not a range that ends: 0 times a factor stays 0");
  REQUIRE(Refusal({"-d", "0-100000"}) == "-d: \"0-100000\" is not a list of up to 1024 values");
  REQUIRE(Refusal({"-pg", "512"}) == "-pg: \"512\" is not two numbers, as in 512,128");
  REQUIRE(Refusal({"-pg", "0,4"}) == "-pg: \"0\" is not a whole number of 1 or more");
  REQUIRE(Refusal({"-r", "0"}) == "-r: \"0\" is not a whole number from 1 to 1000000");
  REQUIRE(Refusal({"--draft", "8"}) == "--draft: \"8\" is not a whole number from 0 to 7");
  REQUIRE(Refusal({"--temp", "nan"}).find("--temp: \"nan\" is not a number") == 0);
  REQUIRE(Refusal({"-o", "xml"}) == "-o: \"xml\" is not md, csv, json or jsonl");
  REQUIRE(Refusal({"--backend", "gpu"}) ==
          "--backend: \"gpu\" is not auto, cpu, cuda or reference");
  REQUIRE(Refusal({"--max-concurrency", "2"}) == "--max-concurrency needs --serve");
  REQUIRE(Refusal({"--serve", "-d", "4"}) ==
          "--serve takes lengths by -p and -n, and no -pg or -d");
  REQUIRE(Refusal({"--serve", "-n", "0"}) == "--serve: -p and -n must be above 0");
  const char* no_model[] = {"dsv4-bench"};
  REQUIRE_THROWS_AS(ParseOptions(1, no_model), chat::Failure);
}

TEST_CASE("every option is in the help") {
  const std::string help = HelpText();
  for (const char* option : {"-m,",           "-p,",
                             "-n,",           "-pg,",
                             "-d,",           "-r,",
                             "-f,",           "--no-warmup",
                             "--serve",       "--max-concurrency",
                             "--num-prompts", "--backend",
                             "--numerics",    "--cache-format",
                             "--tuning",      "-t,",
                             "-c,",           "--prefill-chunk",
                             "--draft",       "--temp",
                             "--top-k",       "--top-p",
                             "--min-p",       "--seed",
                             "-o,",           "--progress",
                             "-h,",           "--version"}) {
    INFO(option);
    REQUIRE(help.find(std::string("\n  ") + option) != std::string::npos);
  }
}

}  // namespace
}  // namespace bench
