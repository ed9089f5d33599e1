// SPDX-License-Identifier: Apache-2.0
#include "lib/model/foreign_layout.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/quoted.h"

namespace dsv4 {
namespace {

struct Mark {
  absl::string_view suffix;  // of a tensor's name
  absl::string_view layout;
};

// The most specific first: files of one tool may also have the suffixes of another.
constexpr Mark kMarks[] = {
    {".weight_packed", "the layout of compressed-tensors"},
    {".qweight", "the layout of GPTQ and AWQ"},
    {".weight_scale_inv", "the FP8 layout of Hugging Face"},
    {"embed_tokens.weight", "the layout of Hugging Face transformers"},
    {"lm_head.weight", "the layout of Hugging Face transformers"},
    {"token_embd.weight", "the layout of GGUF"},
};

}  // namespace

std::string ForeignLayout(const Checkpoint& checkpoint) {
  for (const Mark& mark : kMarks) {
    std::string shown;  // the first by name, so that a folder gives one message
    for (const auto& [name, entry] : checkpoint.tensors()) {
      if (absl::EndsWith(name, mark.suffix) && (shown.empty() || name < shown)) shown = name;
    }
    if (!shown.empty()) return absl::StrCat(mark.layout, " (tensor ", Quoted(shown), ")");
  }
  return "";
}

}  // namespace dsv4
