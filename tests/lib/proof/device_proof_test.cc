// SPDX-License-Identifier: Apache-2.0
// Backends in the host's memory prove themselves, and planted faults are told by operator and
// shape. What the answers are is the reference backend's; that one is pinned by the recorded
// oracle.
#include "lib/proof/device_proof.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/proof/known_answers.h"
#include "lib/proof/launch_memory.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr int32_t kShort = 8;  // a long prompt that is none, for what known answers tell

TEST_CASE("the reference and the cpu backend prove themselves") {
  for (const Backend backend : {Backend::kReference, Backend::kCpu}) {
    ProofOptions options{.backend = backend};
    if (backend == Backend::kReference) options.long_rows = 20;
    const absl::StatusOr<DeviceProof> proof = ProveDevices(options);
    REQUIRE_OK(proof);
    CHECK(proof->flips.size() == 33);
    CHECK(proof->flips.count("draft_logits.logits") == 1);
    CHECK(proof->flips.at("hc_head.quantized").elements > 0);
    CHECK(proof->flips.at("linear_fp8.y").elements > 50000);
    CHECK(proof->long_launches > 100);
  }
}

TEST_CASE("parts of the cpu prove that they give the bits of one") {
  REQUIRE_OK(ProveDevices({.backend = Backend::kCpu, .devices = {0, 1}, .long_rows = kShort}));
}

TEST_CASE("the known answers are the reference backend's") {
  const absl::StatusOr<std::vector<LaunchRecord>> launches = RecordKnownAnswers();
  REQUIRE_OK(launches);
  const std::string bytes = EncodeKnownAnswers(*launches);
  const absl::Span<const uint8_t> builtin = BuiltinKnownAnswers();
  REQUIRE(std::string(builtin.begin(), builtin.end()) == bytes);
}

// Writes `value` to an element of each launch's first output, or that of this name, of operator
// `op`.
ProofOptions WithWrong(Op op, float value, int32_t least_rows = 0, absl::string_view name = "") {
  return {.backend = Backend::kCpu,
          .long_rows = kShort,
          .launched = [=](const KernelEntry& entry, const void* params) {
            static const absl::StatusOr<std::unique_ptr<Device>> device =
                Device::Open({.kind = DeviceKind::kCpu, .threads = 1});
            if (entry.op != op) return;
            const LaunchTensors tensors = entry.tensors(params, **device);
            const auto first = std::find_if(
                tensors.out.begin(), tensors.out.end(), [&](const LaunchOutput& output) {
                  return output.tensor.rows > 0 && (name.empty() || name == output.name);
                });
            if (first == tensors.out.end() || first->tensor.rows < least_rows) return;
            const LaunchTensor& out = first->tensor;
            const LaunchMemory host(device->get(), HostRows{});
            absl::StatusOr<std::vector<float>> values = host.Read(out);
            REQUIRE_OK(values);
            values->back() = value;
            REQUIRE_OK(host.Write(out, *std::move(values)));
          }};
}

TEST_CASE("a wrong result of any kernel is told by operator and shape") {
  struct Planted {
    Op op;
    const char* told;
  };
  for (const Planted& planted :
       {Planted{Op::kEmbedRows, "embed_rows.out (rows "},
        Planted{Op::kRopeTable, "rope_table.window (rows "},
        Planted{Op::kHcPre, "hc_pre.normed (rows "}, Planted{Op::kHcPost, "hc_post.out (rows "},
        Planted{Op::kHcHead, "hc_head.normed (rows "}, Planted{Op::kRmsNorm, "rms_norm."},
        Planted{Op::kLinearFp8, "linear_fp8.y (rows "}, Planted{Op::kLinearBf16, "linear_bf16.y"},
        Planted{Op::kQkvPrepare, "qkv_prepare.q (rows "}, Planted{Op::kCompressKv, "compress_kv."},
        Planted{Op::kSparseAttention, "sparse_attention.o (rows "},
        Planted{Op::kOutputGroups, "output_groups.y (rows "},
        Planted{Op::kExpertFfn, "expert_ffn.y (rows "},
        Planted{Op::kMtpCombine, "mtp_combine.streams (rows "}}) {
    INFO(planted.told);
    const absl::Status status = ProveDevices(WithWrong(planted.op, 100)).status();
    REQUIRE_FAILS(status, absl::StatusCode::kUnimplemented,
                  std::string("is refused: it failed its known answers: ") + planted.told);
  }
  // Indices: another expert, and another compressed block.
  REQUIRE_FAILS(ProveDevices(WithWrong(Op::kMoeGate, 7)).status(), absl::StatusCode::kUnimplemented,
                "moe_gate.experts (rows ");
  REQUIRE_FAILS(ProveDevices(WithWrong(Op::kIndexScoreTopk, 1)).status(),
                absl::StatusCode::kUnimplemented, "index_score_topk.selected (rows ");
}

TEST_CASE("a wrong result of what the DSpark drafter alone launches is told") {
  REQUIRE_FAILS(ProveDevices(WithWrong(Op::kDraftLogits, 100)).status(),
                absl::StatusCode::kUnimplemented, "draft_logits.logits (rows ");
  // The mean of the streams: no other hc_head writes codes.
  REQUIRE_FAILS(ProveDevices(WithWrong(Op::kHcHead, 100, 0, "quantized")).status(),
                absl::StatusCode::kUnimplemented, "hc_head.quantized (rows ");
}

TEST_CASE("NaN in a row is told by operator") {
  for (const Op op : {Op::kLinearFp8, Op::kLinearBf16, Op::kExpertFfn, Op::kCompressKv}) {
    INFO(OpName(op));
    REQUIRE_FAILS(ProveDevices(WithWrong(op, NAN)).status(), absl::StatusCode::kUnimplemented,
                  std::string("known answers: ") + OpName(op));
  }
}

TEST_CASE("a kernel that is wrong in large calls alone breaks the row rule") {
  ProofOptions options = WithWrong(Op::kExpertFfn, 0.125f, 9);
  options.long_rows = 9;
  REQUIRE_FAILS(ProveDevices(options).status(), absl::StatusCode::kUnimplemented,
                "expert_ffn.y (rows 9): row 8 differs from its result in a pass of 8 rows");
}

TEST_CASE("a flipped bit in a weight is told") {
  // Weights of one format share their memory here: whichever reads it first.
  const absl::Status status = ProveDevices({.backend = Backend::kCpu,
                                            .long_rows = kShort,
                                            .opened =
                                                [](Engine& engine) {
                                                  const Fp8Weight& w =
                                                      engine.views(0).layers[0].attn.wq_a;
                                                  const_cast<uint8_t&>(w.data[17]) ^= 0x40;
                                                }})
                                  .status();
  REQUIRE_FAILS(status, absl::StatusCode::kUnimplemented, "failed its known answers: ");
}

TEST_CASE("damaged known answers are refused") {
  const absl::Span<const uint8_t> builtin = BuiltinKnownAnswers();
  std::vector<uint8_t> bytes(builtin.begin(), builtin.begin() + 3000);
  REQUIRE_FAILS(DecodeKnownAnswers(bytes).status(), absl::StatusCode::kDataLoss,
                "the known answers ");
  bytes[8] = 200;
  REQUIRE_FAILS(DecodeKnownAnswers(bytes).status(), absl::StatusCode::kDataLoss,
                "have an operator 200");
  bytes[0] = 'x';
  REQUIRE_FAILS(DecodeKnownAnswers(bytes).status(), absl::StatusCode::kDataLoss,
                "do not begin with their mark");
}

}  // namespace
}  // namespace dsv4
