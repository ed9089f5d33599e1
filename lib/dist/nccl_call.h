// SPDX-License-Identifier: Apache-2.0
// Calls of NCCL that may never return: where PCIe drops what GPUs write to each other, its start
// waits for ever.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

namespace dsv4 {

// The limit of NCCL's start and of its first exchanges.
inline constexpr std::chrono::seconds kNcclStartLimit{30};

// For errors of such waits: what may be wrong, and the ways out.
inline constexpr char kPcieHint[] =
    "PCIe ACS or a translating IOMMU may drop what GPUs write to each other although the driver "
    "offers peer access: set NCCL_P2P_DISABLE=1, or turn ACS off in the BIOS and boot with "
    "iommu=pt";

// The result of `call`, which runs on a thread of its own; nullopt if it has not returned within
// `limit`. The thread then stays behind, and runs `late` with the result if the call does return.
// Both functions must own what they use. Without a thread the caller runs `call` and waits.
std::optional<int> CallWithin(std::chrono::milliseconds limit, std::function<int()> call,
                              std::function<void(int)> late);

}  // namespace dsv4
