// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/known_answers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr char kMagic[8] = {'d', 's', 'v', '4', 'k', 'n', 'w', '1'};

// "dsv4knw1", then each launch: its operator and number of outputs, a byte each; each output: its
// number of elements in four bytes, the bytes of one (2: bf16, 4: f32) in four, and the elements.
struct OutputHead {
  uint32_t elements = 0, element_bytes = 0;
};

bool AllBf16(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float x) { return Bf16ToFloat(FloatToBf16(x)) == x; });
}

class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }
  // Corrupt where the bytes end before.
  absl::Status Take(void* to, size_t size) {
    if (size > bytes_.size()) return Corrupt("the known answers end early");
    if (size > 0) std::memcpy(to, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return absl::OkStatus();
  }
  size_t left() const { return bytes_.size(); }

 private:
  absl::Span<const uint8_t> bytes_;
};

absl::StatusOr<std::vector<float>> ReadOutput(Reader* reader) {
  OutputHead head;
  DSV4_RETURN_IF_ERROR(reader->Take(&head, sizeof head));
  if ((head.element_bytes != 2 && head.element_bytes != 4) || head.elements > reader->left()) {
    return Corrupt("the known answers have an output of ", head.elements, " elements of ",
                   head.element_bytes, " bytes");
  }
  std::vector<float> values(head.elements);
  if (head.element_bytes == 4) {
    DSV4_RETURN_IF_ERROR(reader->Take(values.data(), values.size() * sizeof(float)));
    return values;
  }
  std::vector<uint16_t> narrow(head.elements);
  DSV4_RETURN_IF_ERROR(reader->Take(narrow.data(), narrow.size() * sizeof(uint16_t)));
  std::transform(narrow.begin(), narrow.end(), values.begin(), Bf16ToFloat);
  return values;
}

}  // namespace

std::string EncodeKnownAnswers(absl::Span<const LaunchRecord> launches) {
  std::string bytes(kMagic, sizeof kMagic);
  for (const LaunchRecord& launch : launches) {
    bytes.push_back(static_cast<char>(launch.op));
    bytes.push_back(static_cast<char>(launch.outputs.size()));
    for (const std::vector<float>& output : launch.outputs) {
      const bool narrow = AllBf16(output);
      const OutputHead head{static_cast<uint32_t>(output.size()), narrow ? 2u : 4u};
      bytes.append(reinterpret_cast<const char*>(&head), sizeof head);
      for (const float value : output) {
        const uint16_t bits = FloatToBf16(value);
        if (narrow) {
          bytes.append(reinterpret_cast<const char*>(&bits), sizeof bits);
        } else {
          bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
        }
      }
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<LaunchRecord>> DecodeKnownAnswers(absl::Span<const uint8_t> bytes) {
  Reader reader(bytes);
  char magic[sizeof kMagic];
  DSV4_RETURN_IF_ERROR(reader.Take(magic, sizeof magic));
  if (std::memcmp(magic, kMagic, sizeof magic) != 0) {
    return Corrupt("the known answers do not begin with their mark");
  }
  std::vector<LaunchRecord> launches;
  while (!reader.done()) {
    uint8_t op_and_outputs[2];
    DSV4_RETURN_IF_ERROR(reader.Take(op_and_outputs, sizeof op_and_outputs));
    if (op_and_outputs[0] >= static_cast<uint8_t>(Op::kCount)) {
      return Corrupt("the known answers have an operator ", int{op_and_outputs[0]});
    }
    LaunchRecord& launch = launches.emplace_back();
    launch.op = static_cast<Op>(op_and_outputs[0]);
    for (int i = 0; i < op_and_outputs[1]; ++i) {
      DSV4_ASSIGN_OR_RETURN(std::vector<float> output, ReadOutput(&reader));
      launch.outputs.push_back(std::move(output));
    }
  }
  return launches;
}

}  // namespace dsv4
