// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "lib/engine/group_options.h"
#include "tests/groups/member.h"

namespace dsv4::test {

EngineOptions GroupOptions(const std::string& id, int rank, std::chrono::seconds limit) {
  EngineOptions options{.backend = Backend::kCuda,
                        .context_tokens = 512,
                        .max_sessions = 2,
                        .prefill_chunk_tokens = 8,
                        .max_draft_tokens = 1};
  // The others' have their defaults, which the id replaces.
  if (rank > 0) options = {.backend = Backend::kCuda, .max_draft_tokens = {}};
  // Each process has one GPU, or one of as many as there are processes.
  const char* const gpus = std::getenv("DSV4_TEST_GPUS");
  const int ranks = gpus == nullptr ? 2 : std::atoi(gpus);
  options.group = {.id = id, .build = kTestBuild, .ranks = ranks, .rank = rank, .limit = limit};
  if (rank > 0 && !TakeGroupOptions(&options).ok()) std::abort();
  if (gpus != nullptr) options.devices = {rank};
  return options;
}

std::string GroupModel() {
  const char* const model = std::getenv(kTestModel);
  return model == nullptr ? DSV4_SOURCE_DIR "/models/dsv4-tiny" : model;
}

EngineOptions AloneOptions() {
  EngineOptions options = GroupOptions("", 0, {});
  options.group = {};
  options.devices = {};
  return options;
}

}  // namespace dsv4::test
