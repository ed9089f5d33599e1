// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/e2e/page_of_zeros.h"

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/loaded_library.h"
#include "lib/base/status_macros.h"
#include "lib/weights/weight_table.h"

namespace dsv4 {
namespace {

constexpr int64_t kPage = 2 << 20;

absl::Status Check(CUresult result, absl::string_view what) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return Internal("CUDA error ", static_cast<int>(result), ": ", what);
}

// `bytes` of addresses, a multiple of kPage, that all lead to one page.
absl::StatusOr<std::byte*> MapRepeatedly(int device, int64_t bytes) {
  void* const library = LoadLibraryNamed(kCudaDriverName);  // there: an engine runs on it
#define DSV4_FIND(name) \
  const auto name = reinterpret_cast<decltype(&::name)>(FunctionIn(library, #name))
  DSV4_FIND(cuMemGetAllocationGranularity);
  DSV4_FIND(cuMemAddressReserve);
  DSV4_FIND(cuMemCreate);
  DSV4_FIND(cuMemMap);
  DSV4_FIND(cuMemSetAccess);
#undef DSV4_FIND
  if (cuMemGetAllocationGranularity == nullptr || cuMemAddressReserve == nullptr ||
      cuMemCreate == nullptr || cuMemMap == nullptr || cuMemSetAccess == nullptr) {
    return Unsupported("the driver has no functions for virtual memory");
  }
  CUmemAllocationProp of_page{};
  of_page.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of_page.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  size_t granularity = 0;
  DSV4_RETURN_IF_ERROR(
      Check(cuMemGetAllocationGranularity(&granularity, &of_page, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            "asking for the size of pages"));
  if (granularity == 0 || kPage % static_cast<int64_t>(granularity) != 0) {
    return Unsupported("pages of ", granularity, " bytes");
  }
  CUmemGenericAllocationHandle page{};
  DSV4_RETURN_IF_ERROR(Check(cuMemCreate(&page, kPage, &of_page, 0), "allocating a page"));
  CUdeviceptr base = 0;
  DSV4_RETURN_IF_ERROR(Check(cuMemAddressReserve(&base, static_cast<size_t>(bytes), 0, 0, 0),
                             "reserving addresses"));
  for (int64_t at = 0; at < bytes; at += kPage) {
    DSV4_RETURN_IF_ERROR(
        Check(cuMemMap(base + static_cast<CUdeviceptr>(at), kPage, 0, page, 0), "mapping a page"));
  }
  CUmemAccessDesc access{};
  access.location = of_page.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  DSV4_RETURN_IF_ERROR(
      Check(cuMemSetAccess(base, static_cast<size_t>(bytes), &access, 1), "opening a page"));
  return reinterpret_cast<std::byte*>(base);  // NOLINT(performance-no-int-to-ptr)
}

// Lets all entries of the layer's table lead to its first expert, whose matrices begin at `zeros`.
absl::Status UseOneExpert(Device& device, const MoeWeights& moe, const uint8_t* zeros) {
  // Of device memory, which is not constant.
  auto* const table = reinterpret_cast<std::byte*>(const_cast<const ExpertWeights**>(moe.table));
  const auto entries = static_cast<size_t>(moe.gate.n);
  const ExpertWeights* first = nullptr;
  DSV4_RETURN_IF_ERROR(device.Download(reinterpret_cast<std::byte*>(&first), table, sizeof first));
  auto* const place = reinterpret_cast<std::byte*>(const_cast<ExpertWeights*>(first));
  ExpertWeights expert;
  DSV4_RETURN_IF_ERROR(
      device.Download(reinterpret_cast<std::byte*>(&expert), place, sizeof expert));
  for (ExpertMatrix* m : {&expert.w1, &expert.w3, &expert.w2}) m->data = zeros;
  DSV4_RETURN_IF_ERROR(
      device.Upload(place, reinterpret_cast<const std::byte*>(&expert), sizeof expert));
  const std::vector<const ExpertWeights*> all(entries, first);
  return device.Upload(table, reinterpret_cast<const std::byte*>(all.data()),
                       static_cast<int64_t>(entries * sizeof first));
}

}  // namespace

absl::Status ReadPageOfZeros(Engine* engine) {
  const EngineInfo& info = engine->info();
  Device& device = engine->device();
  if (device.host_memory() || info.devices.size() != 1 || info.residency.on_host > 0) {
    return Unsupported("weights can be taken out of one GPU that has all of them");
  }
  WeightViews& views = engine->views(0);
  const std::vector<MoeWeights*> layers = MoeLayersOf(&views);
  std::vector<const ExpertWeights* const*> tables;
  for (const MoeWeights* moe : layers) tables.push_back(moe->table);
  WeightTable table(engine->config());
  table.AddAll(&views);  // sets the layers' tables to those of files
  int64_t elements = 0;
  for (const WeightSpec& spec : table.specs()) {
    elements = std::max(elements, spec.n * std::max<int64_t>(spec.k, 1));
  }
  // Packed weights have whole tiles of rows.
  const int64_t bytes = RoundUp(elements * static_cast<int64_t>(sizeof(float)), kPage) + kPage;
  DSV4_ASSIGN_OR_RETURN(std::byte* const zeros, MapRepeatedly(device.index(), bytes));
  const std::vector<std::byte> page(kPage);
  DSV4_RETURN_IF_ERROR(device.Upload(zeros, page.data(), kPage));
  for (const WeightSpec& spec : table.specs()) {
    if (spec.k == 0 || spec.name == "embed.weight") continue;
    if (const auto* fp8 = std::get_if<Fp8Weight*>(&spec.view)) {
      (*fp8)->data = reinterpret_cast<const uint8_t*>(zeros);
    } else if (const auto* bf16 = std::get_if<Bf16Weight*>(&spec.view)) {
      (*bf16)->data = reinterpret_cast<const uint16_t*>(zeros);
    } else if (const auto* f32 = std::get_if<const float**>(&spec.view)) {
      **f32 = reinterpret_cast<const float*>(zeros);
    }
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i]->table = tables[i];
    DSV4_RETURN_IF_ERROR(UseOneExpert(device, *layers[i], reinterpret_cast<const uint8_t*>(zeros)));
  }
  DSV4_RETURN_IF_ERROR(device.Synchronize());
  return engine->model().RecordAgain();
}

}  // namespace dsv4
