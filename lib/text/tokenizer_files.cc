// SPDX-License-Identifier: Apache-2.0
#include "lib/text/tokenizer_files.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/gguf.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_path.h"
#include "lib/io/native_path.h"
#include "lib/text/gguf_text.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {
namespace {

absl::StatusOr<TokenizerText> FromFile(const std::string& file, const std::string& folder) {
  DSV4_ASSIGN_OR_RETURN(std::string json, ReadFile(file, kMaxTokenizerBytes));
  return TokenizerText{std::move(json), file, FindChatEncoder(folder)};
}

}  // namespace

absl::StatusOr<TokenizerText> ReadTokenizer(const std::string& path) {
  if (!path.empty() && !absl::EndsWith(path, ".gguf") && !IsFolder(path)) {
    return FromFile(path, FolderOf(path));
  }
  DSV4_ASSIGN_OR_RETURN(const ModelPath files, ModelPath::Find(path));
  absl::StatusOr<TokenizerText> beside = FromFile(files.folder + "/tokenizer.json", files.folder);
  if (files.gguf.empty() || (!beside.ok() && !absl::IsNotFound(beside.status()))) return beside;
  DSV4_ASSIGN_OR_RETURN(const GgufModel model, OpenGguf(files.gguf));
  const std::optional<FoundChatEncoder> encoder = GgufChatEncoder(model);
  if (beside.ok()) {
    if (encoder) beside->encoder = *encoder;
    return beside;
  }
  if (model.Find("tokenizer.ggml.model") == nullptr) {
    return NotFound(model.path(), ": no tokenizer: key tokenizer.ggml.model is missing");
  }
  DSV4_ASSIGN_OR_RETURN(std::string json, GgufTokenizerJson(model));
  return TokenizerText{std::move(json), model.path(),
                       encoder ? *encoder : FindChatEncoder(files.folder)};
}

}  // namespace dsv4
