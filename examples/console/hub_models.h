// SPDX-License-Identifier: Apache-2.0
// Models in the local cache of the Hugging Face hub, and what the programs take as a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace chat {

// The folder of the hub's cache: HF_HUB_CACHE, or "hub" in HF_HOME, or "huggingface/hub" in
// XDG_CACHE_HOME, or in ".cache" of HOME. "" if none of these variables is set.
std::string HubCache();

struct HubModel {
  std::string name = {};     // "OWNER/NAME"
  std::string path = {};     // what the library opens: a snapshot, or a GGUF file of it; "": none
  std::string problem = {};  // why there is no path
  int64_t bytes = 0;         // of the snapshot's files
  bool known = true;         // false: it has a config.json of another model family
};

// The models in the cache, by name. Of each the newest snapshot with all its files, or, without
// such a snapshot, what is missing.
std::vector<HubModel> ListHubModels();

// The command that downloads a model, with the size of published ones: "hf download OWNER/NAME
// (159.6 GB)".
std::string DownloadCommand(const std::string& name);

// The path to open for what a user names: a folder, a GGUF file, a folder of the hub's cache, or
// OWNER/NAME in that cache. Everything else is returned as it is, for the library to refuse. Throws
// an Error with DSV4_ERR_NOT_FOUND, which has the download command, for an OWNER/NAME that is not
// there or not complete.
std::string FindModel(const std::string& given);

}  // namespace chat
