// SPDX-License-Identifier: Apache-2.0
// The launches that tests/support/launch_marks.h marks are in NVTX's range "check", each alone. On
// a GPU that is made up, with a tool of NVTX that is linked in; DSV4_TEST_MARK is 0/1.
#define NVTX_NO_IMPL  // a tool calls none of its functions
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/bundled_model.h"
#include "tests/support/made_up_gpu.h"

namespace dsv4::test {
namespace {

struct Seen {
  MadeUpLaunch launch;
  std::string range;  // "" for none
};
std::vector<Seen> seen;
std::string range;

// Launches since the last call were in the range that was open.
void See() {
  for (MadeUpLaunch& launch : TakeMadeUpLaunches()) seen.push_back({std::move(launch), range});
}

int NVTX_API Push(const char* name) {
  See();
  range = name;
  return 0;
}

int NVTX_API Pop() {
  const size_t before = seen.size();
  See();
  CHECK(seen.size() == before + 1);
  range.clear();
  return 0;
}

int NVTX_API Initialize(NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(Push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(Pop);
  return 1;
}

TEST_CASE("of each kernel and shape the launches 1, 2, 4, 8, .. are in the range check") {
  const auto engine =
      OpenBundled({.backend = Backend::kCuda, .context_tokens = 512, .graphs = false});
  const auto session = OpenSession(engine);
  REQUIRE_OK(session->Sync(AnyTokens(5, 1)));
  for (int i = 0; i < 3; ++i) REQUIRE_OK(session->Step());
  See();
  std::map<std::tuple<const void*, std::array<int64_t, 5>>, int64_t> numbers;
  int64_t most = 0;
  bool recorded = false;
  for (const auto& [launch, in] : seen) {
    // As kernels are loaded.
    if (launch.recorded) {
      recorded = true;
      REQUIRE(in.empty());
      continue;
    }
    const int64_t number = ++numbers[{launch.kernel,
                                      {launch.blocks[0], launch.blocks[1], launch.blocks[2],
                                       launch.threads, launch.shared_bytes}}];
    most = std::max(most, number);
    bool marked = false;
    for (int64_t power = 1; power <= number; power *= 2) marked |= power == number;
    CAPTURE(launch.symbol, number);
    REQUIRE(in == (marked ? "check" : ""));
  }
  CHECK(recorded);
  CHECK(most > 16);
}

}  // namespace
}  // namespace dsv4::test

// How NVTX finds a tool that is linked in.
extern "C" {
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = dsv4::test::Initialize;
}
