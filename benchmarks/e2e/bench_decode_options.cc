// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/e2e/bench_decode_options.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace dsv4 {

const char kBenchDecodeUsage[] =
    "usage: bench_decode [--auto] [--leave GB] [--backend cpu|cuda] [--devices I,...]\n"
    "                    [--exchange auto|direct|host|nccl|none] [--synthetic-layers N]\n"
    "                    [--mix M]\n"
    "                    [--contexts N,...] [--sessions N,...] [--prefills N,...] [--chunk N]\n"
    "                    [--steps N] [--temperature T] [--operators] [--no-graphs]\n"
    "                    [--step-limit]\n"
    "                    [--tuning DIR] [--device-weights GB] [--router-skew X] [--warm N]\n"
    "                    [--drafts N] [--host-weights GB] [--disk-file FILE]\n"
    "                    [--cache-format packed|bf16|fp8_per_tensor] [--cpu-experts N]\n"
    "                    [--threads N] [--own-tokens N] MODEL_DIR\n";

namespace {

std::vector<int64_t> Numbers(const char* text) {
  std::vector<int64_t> numbers;
  while (*text != '\0') {
    char* end = nullptr;
    numbers.push_back(std::strtoll(text, &end, 10));
    if (end == text || numbers.back() < 1) return {};
    text = *end == ',' ? end + 1 : end;
  }
  return numbers;
}

bool ParseGigabytes(const char* text, int64_t* bytes) {
  double gigabytes = 0;
  if (!absl::SimpleAtod(text, &gigabytes) || !(gigabytes > 0)) return false;
  *bytes = std::llround(gigabytes * 1e9);
  return true;
}

}  // namespace

bool ParseBenchDecode(int argc, char** argv, BenchDecodeOptions* options) {
  options->engine.prefill_chunk_tokens = 4096;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--operators") {
      options->operators = true;
      continue;
    }
    if (argument == "--auto") {
      options->automatic = true;
      continue;
    }
    if (argument == "--step-limit") {
      options->engine.step_limit = std::chrono::minutes(1);
      continue;
    }
    if (argument == "--no-graphs") {
      options->engine.graphs = false;
      continue;
    }
    if (argument[0] != '-') {
      if (!options->folder.empty()) return false;
      options->folder = argument;
      continue;
    }
    if (++i == argc) return false;
    if (argument == "--backend") {
      const std::string name = argv[i];
      if (name != "cpu" && name != "cuda") return false;
      options->engine.backend = name == "cpu" ? Backend::kCpu : Backend::kCuda;
      continue;
    }
    if (argument == "--devices") {
      for (const absl::string_view number : absl::StrSplit(argv[i], ',')) {
        int32_t device = 0;
        if (!absl::SimpleAtoi(number, &device)) return false;
        options->engine.devices.push_back(device);
      }
      continue;
    }
    if (argument == "--exchange") {
      static const std::map<std::string, ExchangePath> paths = {{"auto", ExchangePath::kAuto},
                                                                {"direct", ExchangePath::kDirect},
                                                                {"host", ExchangePath::kHost},
                                                                {"nccl", ExchangePath::kNccl},
                                                                {"none", ExchangePath::kNone}};
      const auto path = paths.find(argv[i]);
      if (path == paths.end()) return false;
      options->engine.exchange = path->second;
      continue;
    }
    if (argument == "--cache-format") {
      for (const RowFormat format :
           {RowFormat::kPacked, RowFormat::kBf16, RowFormat::kFp8PerTensor}) {
        if (RowFormatName(format) == absl::string_view(argv[i])) {
          options->engine.cache_format = format;
        }
      }
      if (!options->engine.cache_format) return false;
      continue;
    }
    if (argument == "--tuning") {
      options->engine.tuning_dir = argv[i];
      continue;
    }
    if (argument == "--device-weights") {
      if (!ParseGigabytes(argv[i], &options->engine.weight_budgets.device_bytes)) return false;
      continue;
    }
    if (argument == "--host-weights") {
      if (!ParseGigabytes(argv[i], &options->engine.weight_budgets.host_bytes)) return false;
      continue;
    }
    if (argument == "--leave") {
      if (!ParseGigabytes(argv[i], &options->left_bytes)) return false;
      continue;
    }
    if (argument == "--mix") {
      options->engine.synthetic.mix = argv[i];
      continue;
    }
    if (argument == "--disk-file") {
      options->engine.synthetic.file = argv[i];
      continue;
    }
    if (argument == "--router-skew") {
      if (!absl::SimpleAtof(argv[i], &options->engine.synthetic.skew)) return false;
      continue;
    }
    if (argument == "--temperature") {
      char* end = nullptr;
      options->temperature = std::strtof(argv[i], &end);
      if (end == argv[i] || *end != '\0' || !(options->temperature >= 0)) return false;
      continue;
    }
    const std::vector<int64_t> numbers = Numbers(argv[i]);
    if (numbers.empty()) return false;
    if (argument == "--synthetic-layers") {
      options->engine.synthetic_layers = numbers[0];
    } else if (argument == "--contexts") {
      options->contexts = numbers;
    } else if (argument == "--sessions") {
      options->sessions = numbers;
    } else if (argument == "--prefills") {
      options->prefills = numbers;
    } else if (argument == "--steps") {
      options->steps = numbers[0];
    } else if (argument == "--drafts") {
      options->drafts = numbers[0];
    } else if (argument == "--cpu-experts") {
      options->engine.weight_budgets.cpu_experts = numbers[0];
    } else if (argument == "--threads") {
      options->engine.threads = static_cast<int32_t>(numbers[0]);
    } else if (argument == "--own-tokens") {
      options->own_tokens = numbers[0];
    } else if (argument == "--warm") {
      options->warm_steps = numbers[0];
    } else if (argument == "--chunk") {
      options->engine.prefill_chunk_tokens = static_cast<int32_t>(numbers[0]);
    } else {
      return false;
    }
  }
  return !options->folder.empty() &&
         *std::min_element(options->contexts.begin(), options->contexts.end()) >
             options->own_tokens;
}

}  // namespace dsv4
