// SPDX-License-Identifier: Apache-2.0
#include "lib/io/model_path.h"

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/checkpoint.h"
#include "lib/io/gguf.h"
#include "lib/io/native_path.h"

namespace dsv4 {

absl::StatusOr<ModelPath> ModelPath::Find(const std::string& path) {
  if (path.empty()) return InvalidArgument("the path of the model is empty");
  if (IsGgufPath(path) && !IsFolder(path)) return ModelPath{FolderOf(path), path};
  ModelPath found{path, ""};
  if (!Checkpoint::LiesIn(path)) {
    DSV4_ASSIGN_OR_RETURN(found.gguf, GgufIn(path));
  }
  return found;
}

}  // namespace dsv4
