// SPDX-License-Identifier: Apache-2.0
// The bundled model with routed experts that decide its logits. Its own are so small that all of
// them could be zero and no rounded number would change: a test of where experts lie must not use
// it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/io/checkpoint.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"

namespace dsv4::test {

// Writes it to an empty folder, in one file. Expert e of a layer has the weights of expert
// e + `rotation` of the bundled model.
inline void WriteLoudModel(const TempFolder& folder, int rotation = 0) {
  constexpr int kExperts = 16, kExponents = 6;  // each scale times 2^6
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    folder.Write(file, BundledFile(file));
  }
  const auto checkpoint = Checkpoint::Open(kBundledModel);
  REQUIRE_OK(checkpoint);
  int louder = 0;
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : (*checkpoint)->tensors()) {
    std::string from = name;
    const size_t at = name.find(".ffn.experts.");
    if (at != std::string::npos) {
      const size_t number = at + 13, end = name.find('.', number);
      int expert = 0;
      REQUIRE(absl::SimpleAtoi(name.substr(number, end - number), &expert));
      from = absl::StrCat(name.substr(0, number), (expert + rotation) % kExperts, name.substr(end));
    }
    const TensorEntry* stored = (*checkpoint)->Find(from);
    REQUIRE(stored != nullptr);
    std::string bytes(reinterpret_cast<const char*>(stored->data),
                      static_cast<size_t>(stored->bytes));
    if (at != std::string::npos && absl::EndsWith(name, ".scale")) {
      for (char& exponent : bytes) exponent = static_cast<char>(exponent + kExponents);
      ++louder;
    }
    tensors.push_back({name, std::string(entry.dtype_name()), entry.shape, std::move(bytes)});
  }
  REQUIRE(louder > 0);
  REQUIRE((*checkpoint)->Find("layers.0.ffn.experts.15.w1.weight") != nullptr);
  REQUIRE((*checkpoint)->Find("layers.0.ffn.experts.16.w1.weight") == nullptr);
  folder.Write("model.safetensors", SafetensorsImage(tensors));
}

// Its folder, which is there until the process ends.
inline const std::string& LoudModel() {
  static const TempFolder folder;
  static const bool written = [] {
    WriteLoudModel(folder);
    return true;
  }();
  static_cast<void>(written);
  return folder.path();
}

}  // namespace dsv4::test
