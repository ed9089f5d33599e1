// SPDX-License-Identifier: Apache-2.0
// dsv4-verify: checks that this build computes what the model family's published code computes.
#include <cstdio>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/base/error.h"
#include "tools/verify/canary_command.h"
#include "tools/verify/command_line.h"
#include "tools/verify/device_command.h"
#include "tools/verify/doctor_command.h"
#include "tools/verify/encoding_command.h"
#include "tools/verify/gates_command.h"
#include "tools/verify/hash_command.h"
#include "tools/verify/oracle_command.h"
#include "tools/verify/soak_command.h"
#include "tools/verify/tokenizer_command.h"

namespace {

constexpr char kHelp[] =
    R"(usage: dsv4-verify oracle --mode exact|fp32|published [options] CASE.json EXPECTED.safetensors
       dsv4-verify tokenizer TOKENIZER.json CASES.json
       dsv4-verify encoding CASES.json
       dsv4-verify gates [options] MODEL
       dsv4-verify hash [--expect HASH] MODEL
       dsv4-verify canary [options] MODEL
       dsv4-verify soak --hours H|--tokens N [options] MODEL
       dsv4-verify device [options]
       dsv4-verify doctor [--limit S] [MODEL]

oracle     Writes the case's checkpoint, runs it, and prints the relative L2 distance of every
           figure from the recorded one and whether the mode's rule holds (tests/oracle/README.md);
           published also prints how many elements of each operator's outputs differ.
           exact reads NAME.exact.safetensors; fp32 and published read NAME.published.safetensors.
  --mode M         exact and fp32 are the reference backend's
  --backend B      reference (default), cpu or cuda
  --prompt N       only the case's prompt of N tokens; may be given again
  --omit POINT     leave out a rounding point or quantiser: the rule must notice (reference)
  --layers         also print the recorded tensors that the rule does not read
  --devices N,...  devices of that backend that split the model; default: its first
  --device-weights BYTES|least
                   limit of the weights on each device; experts beyond it are on the host (cuda)
  --cache-format F rows of both engines: auto (default), packed, bf16, f32; or fp8_per_tensor:
                   published then compares cpu or cuda with the reference, not with recorded tensors
  --threads N      default: one per usable core
  --keep DIR       write the checkpoint to DIR and leave it there; default: a temporary folder
  --model PATH     this MODEL, whose figures were recorded, in place of the case's checkpoint;
                   drafts are not compared
tokenizer  Encodes and decodes the cases {text, ids, decoded} of the HF tokenizers library.
encoding   Renders the conversations {messages, options, prompt} and parses the completions {text,
           thinking_mode, message}, whole and as they stream, of the published chat format ("encode"
           and "parse"), including refusals.
gates      Answers the model folder's gates.json greedily and prints the pass rate per kind.
  --backend B      cpu (default), cuda or reference
  --draft N        use up to N drafts a step by the model's drafter; also prints, for the recorded
                   answers, the tokens per step with drafts and the share of steps that accepted
                   their first draft
  --draft-length X, --first-drafts SHARE
                   lower limits of these two numbers; no session may stop drafting
  --devices N,...  devices of that backend that split the model; default: its first
  --device-weights BYTES|least
                   limit of the weights on each device; experts beyond it are on the host (cuda)
  --cache-format F rows of the cache: auto (default), packed, bf16, fp8_per_tensor or f32
  --threads N      default: one per usable core
hash       Prints the hash of all bytes of the weights, and the fingerprint that saved sessions carry.
  --expect HASH    the hash of all bytes must be this one
canary     Computes the prompt of the folder's dsv4_canary.json and prints the largest distance of its
           logits from the recorded ones. Engines do the same when they open the folder
           (docs/verify-device.md).
  --write FILE     records the logits of this folder, with this backend, to FILE instead
  --text TEXT      the prompt to record; default: a few short sentences
  --tolerance X    the most that a logit may differ from those recorded, default 0.5
  --backend B      cpu (default), cuda or reference
  --devices N,...  devices of that backend that split the model; default: its first
  --device-weights BYTES|least
                   limit of the weights on each device; experts beyond it are on the host (cuda)
  --threads N      default: one per usable core
soak       Runs greedy sessions together, with up to 5 drafts, shared prefixes, forks, rewinds, saved and
           loaded sessions and cancels, and compares every token with that of undisturbed runs.
  --hours H        ends after this time; with --tokens: whichever comes first
  --tokens N       ends once so many tokens are compared
  --sessions N     the most at a time, default 16
  --prompts N      undisturbed runs to compare with, default 24
  --seed N         of prompts and operations, default 1
  --backend B      cpu (default), cuda or reference
  --devices N,...  devices of that backend that split the model; default: its first
  --cache-format F rows of the cache: auto (default), packed, bf16, fp8_per_tensor or f32
  --threads N      default: one per usable core
device     Prints a report of GPUs: driver, clocks, throttling, bandwidth, exchange, and the known-answer
           test of every kernel with each of its configs (docs/verify-device.md).
  --backend B      cuda (default); cpu or reference: only the known-answer test
  --devices N,...  devices of that backend, also together; default: its first
  --threads N      default: one per usable core
  --tuning-dir DIR tuning files that replace this build's
  --rows N         of the long prompt, default 264
  --write FILE     writes the reference backend's answers to FILE instead
doctor     Prints a page for a report: processor, memory, GPUs or why there is none, driver, link, peer
           access, whether GPUs give the known answers with each set of kernels, RDMA devices and
           what makes them slow; and for a model the disk's speed, where it would run, and why not
           elsewhere. It has no paths of yours.
  --limit S        ends if a driver does not return from a call for so many seconds; default 30

MODEL is a folder, a GGUF file, or OWNER/NAME in the hub's local cache.

Exit codes: 0 passed, 1 a check failed, 2 usage, 3 a missing, malformed or unsupported file, 4 out of
memory, 130 interrupted.
)";

}  // namespace

int main(int argc, char** argv) {
  using namespace dsv4;
  const absl::Span<char* const> arguments(argv + 1, argc > 0 ? argc - 1 : 0);
  for (const absl::string_view argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      std::fputs(kHelp, stdout);
      return kExitPassed;
    }
    if (argument == "--version") {
      std::printf("dsv4-verify %s\n", DSV4_PROJECT_VERSION);
      return kExitPassed;
    }
    if (argument == "--") break;
  }
  if (arguments.empty()) return ReportUsage(InvalidArgument("a command is needed"));
  const absl::string_view command = arguments[0];
  if (command == "oracle") return RunOracleCommand(arguments.subspan(1));
  if (command == "tokenizer") return RunTokenizerCommand(arguments.subspan(1));
  if (command == "encoding") return RunEncodingCommand(arguments.subspan(1));
  if (command == "gates") return RunGatesCommand(arguments.subspan(1));
  if (command == "hash") return RunHashCommand(arguments.subspan(1));
  if (command == "canary") return RunCanaryCommand(arguments.subspan(1));
  if (command == "soak") return RunSoakCommand(arguments.subspan(1));
  if (command == "doctor") return RunDoctorCommand(arguments.subspan(1));
  if (command == "device") return RunDeviceCommand(arguments.subspan(1));
  return ReportUsage(InvalidArgument("unknown command ", command));
}
