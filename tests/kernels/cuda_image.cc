// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cuda_image.h"

#include <cxxabi.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/mapped_file.h"

namespace dsv4::test {
namespace {

using Bytes = absl::Span<const uint8_t>;

// Values that NVIDIA does not document, as ptxas -v and nvdisasm of CUDA 13.0 explain them.
constexpr uint32_t kFatBinary = 0xba55ed50;  // the first word of one
constexpr uint16_t kMachineCuda = 190;
constexpr uint8_t kEntrySymbol = 0x10;    // in st_other: a kernel, not a function that it calls
constexpr uint8_t kSizedAttribute = 4;    // of .nv.info: 16 bits of size and the value follow
constexpr uint8_t kRegisterCount = 0x2f;  // symbol, registers
constexpr uint8_t kMinStackSize = 0x12;   // symbol, bytes
constexpr size_t kInstructionBytes = 16;  // the lowest bits are the operation
constexpr uint32_t kFormMask = 0x1ff;     // of the operation; the bits above say of what operands
constexpr uint32_t kLdl = 0x183, kStl = 0x187;
constexpr uint32_t kBra = 0x147;
constexpr uint32_t kOperationMask = 0xfff;
constexpr uint32_t kScaledQmma = 0x47a, kScaledOmma = 0x47f;
constexpr uint32_t kHmma = 0x03c, kQmma = 0x07a, kOmma = 0x07f, kImma = 0x037, kDmma = 0x03f;

struct Section {
  std::string name;
  uint32_t type = 0, link = 0;
  uint64_t size = 0;
  Bytes bytes;  // empty where the file has none
};

// Sections of an ELF file at the beginning of `file`.
absl::StatusOr<std::vector<Section>> Sections(Bytes file, const std::string& path) {
  const absl::Status damaged = Corrupt(path, ": a damaged ELF file");
  Elf64_Ehdr header;
  if (file.size() < sizeof header) return damaged;
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff > file.size() ||
      header.e_shnum > (file.size() - header.e_shoff) / sizeof(Elf64_Shdr) ||
      header.e_shstrndx >= header.e_shnum) {
    return damaged;
  }
  std::vector<Elf64_Shdr> headers(header.e_shnum);
  std::memcpy(headers.data(), file.data() + header.e_shoff, headers.size() * sizeof(Elf64_Shdr));
  std::vector<Section> sections;
  for (const Elf64_Shdr& each : headers) {
    Section section{
        .name = "", .type = each.sh_type, .link = each.sh_link, .size = each.sh_size, .bytes = {}};
    if (each.sh_type != SHT_NOBITS && each.sh_type != SHT_NULL) {
      if (each.sh_offset > file.size() || each.sh_size > file.size() - each.sh_offset)
        return damaged;
      section.bytes = file.subspan(each.sh_offset, each.sh_size);
    }
    sections.push_back(std::move(section));
  }
  const Bytes names = sections[header.e_shstrndx].bytes;
  for (size_t i = 0; i < sections.size(); ++i) {
    const auto begin = std::min<size_t>(headers[i].sh_name, names.size());
    const auto end = std::find(names.begin() + static_cast<std::ptrdiff_t>(begin), names.end(), 0);
    sections[i].name.assign(names.begin() + static_cast<std::ptrdiff_t>(begin), end);
  }
  return sections;
}

template <class T>
T At(Bytes bytes, size_t offset) {
  T value{};
  if (offset + sizeof value <= bytes.size())
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// "void dsv4::sm12x::rms_norm::f<int>(long)" -> "f<int>". The namespace of a source file goes, that
// of the second set stays.
std::string ReadableName(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0) return mangled;
  std::string name = absl::StrReplaceAll(text.get(), {{"dsv4::sm12x::", ""}, {"dsv4::", ""}});
  if (absl::string_view(name).substr(0, 5) == "void ") name.erase(0, 5);
  // The parameters' parenthesis is the last one: template arguments may have casts before.
  int depth = 0;
  for (size_t i = name.size(); i-- > 0 && name.back() == ')';) {
    depth += (name[i] == ')') - (name[i] == '(');
    if (depth == 0) {
      name.resize(i);
      break;
    }
  }
  const size_t own = name.substr(0, name.find('<')).rfind("::");
  if (own == name.npos) return name;
  const absl::string_view second = "sm12x_second::";
  const bool of_second = absl::StartsWith(name, second);
  name.erase(0, own + 2);
  return of_second ? absl::StrCat(second, name) : name;
}

enum class Kind { kLocal, kScaledMma, kOtherMma, kRest };

Kind KindOf(uint32_t operation) {
  const uint32_t form = operation & kFormMask;
  if (form == kLdl || form == kStl) return Kind::kLocal;
  if (operation == kScaledQmma || operation == kScaledOmma) return Kind::kScaledMma;
  if (form == kHmma || form == kQmma || form == kOmma || form == kImma || form == kDmma)
    return Kind::kOtherMma;
  return Kind::kRest;
}

// Instructions from the one that a branch goes to, to itself; 0 and less for one that goes forward.
// Bits 16 to 23 and those from 34 on are the distance from the next instruction, in 4 bytes.
int64_t BranchedBack(uint64_t branch) {
  const auto high = static_cast<int64_t>(branch) >> 34;
  const int64_t distance = high * 256 + static_cast<int64_t>(branch >> 16 & 0xff);
  return -distance * 4 / static_cast<int64_t>(kInstructionBytes);
}

void CountInstructions(Bytes code, CudaKernel* kernel) {
  std::vector<int64_t> scaled = {0}, other = {0};  // MMAs before each instruction
  struct Loop {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  std::vector<Loop> loops;  // with MMAs, by their ends
  for (size_t at = 0; at + kInstructionBytes <= code.size(); at += kInstructionBytes) {
    const auto operation = At<uint64_t>(code, at);
    const Kind kind = KindOf(static_cast<uint32_t>(operation & kOperationMask));
    kernel->local += kind == Kind::kLocal;
    scaled.push_back(scaled.back() + (kind == Kind::kScaledMma));
    other.push_back(other.back() + (kind == Kind::kOtherMma));
    if ((operation & kFormMask) != kBra) continue;
    const auto end = static_cast<int64_t>(scaled.size()) - 1;
    const int64_t begin = end - BranchedBack(operation);
    if (begin < 0 || begin >= end) continue;
    const auto mmas = [&](const std::vector<int64_t>& before) {
      return before.back() - before[static_cast<size_t>(begin)];
    };
    if (mmas(scaled) + mmas(other) > 0) loops.push_back({begin, end});
  }
  kernel->scaled_mma = scaled.back();
  kernel->other_mma = other.back();
  const auto is_in = [](const Loop& in, const Loop& loop) {
    return in.begin >= loop.begin && in.end <= loop.end && in.size() < loop.size();
  };
  for (const Loop& loop : loops) {
    if (std::any_of(loops.begin(), loops.end(), [&](const Loop& in) { return is_in(in, loop); }))
      continue;
    const auto mmas = [&](const std::vector<int64_t>& before) {
      return before[static_cast<size_t>(loop.end)] - before[static_cast<size_t>(loop.begin)];
    };
    if (mmas(scaled) + mmas(other) <= kernel->loop_scaled_mma + kernel->loop_other_mma) continue;
    kernel->loop_instructions = loop.size();
    kernel->loop_scaled_mma = mmas(scaled);
    kernel->loop_other_mma = mmas(other);
    kernel->around_instructions = 0;
    for (const Loop& around : loops) {
      if (is_in(loop, around) &&
          (kernel->around_instructions == 0 || around.size() < kernel->around_instructions))
        kernel->around_instructions = around.size();
    }
  }
}

// The values of one attribute of .nv.info, by symbol.
std::map<uint32_t, int64_t> Attribute(Bytes info, uint8_t attribute) {
  std::map<uint32_t, int64_t> values;
  for (size_t at = 0; at + 4 <= info.size();) {
    const auto size = info[at] == kSizedAttribute ? At<uint16_t>(info, at + 2) : uint16_t{0};
    if (size == 8 && info[at + 1] == attribute)
      values[At<uint32_t>(info, at + 4)] = At<uint32_t>(info, at + 8);
    at += size_t{4} + size;
  }
  return values;
}

absl::StatusOr<CudaImage> ReadImage(Bytes file, const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const std::vector<Section> sections, Sections(file, path));
  std::map<std::string, const Section*> by_name;
  for (const Section& section : sections) by_name[section.name] = &section;
  const auto find = [&](const std::string& name) -> const Section* {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  };
  const Section* symbols = find(".symtab");
  const Section* info = find(".nv.info");
  if (symbols == nullptr || info == nullptr || symbols->link >= sections.size())
    return Corrupt(path, ": device code without symbols or .nv.info");
  const Bytes names = sections[symbols->link].bytes;
  const std::map<uint32_t, int64_t> registers = Attribute(info->bytes, kRegisterCount);
  const std::map<uint32_t, int64_t> stacks = Attribute(info->bytes, kMinStackSize);

  CudaImage image{.architecture = static_cast<int32_t>(
                      At<uint32_t>(file, offsetof(Elf64_Ehdr, e_flags)) >> 8 & 0xff),
                  .kernels = {}};
  int64_t reserved_shared = 0;
  for (size_t pass = 0; pass < 2; ++pass) {
    for (uint32_t i = 0; i < symbols->bytes.size() / sizeof(Elf64_Sym); ++i) {
      const auto symbol = At<Elf64_Sym>(symbols->bytes, i * sizeof(Elf64_Sym));
      if (symbol.st_name >= names.size()) return Corrupt(path, ": a symbol without a name");
      const auto* begin = reinterpret_cast<const char*>(names.data()) + symbol.st_name;
      const std::string name(begin, strnlen(begin, names.size() - symbol.st_name));
      if (pass == 0) {
        // What the driver takes of each block; the size of .nv.shared has it, too.
        if (name == ".nv.reservedSmem.cap") reserved_shared = static_cast<int64_t>(symbol.st_value);
        continue;
      }
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || (symbol.st_other & kEntrySymbol) == 0)
        continue;
      const Section* code = find(".text." + name);
      const auto register_count = registers.find(i), stack = stacks.find(i);
      if (code == nullptr || register_count == registers.end() || stack == stacks.end())
        return Corrupt(path, ": kernel ", name, " without code or attributes");
      const Section* shared = find(".nv.shared." + name);
      CudaKernel kernel{.symbol = name,
                        .name = ReadableName(name),
                        .registers = register_count->second,
                        .stack_bytes = stack->second,
                        .shared_bytes = shared == nullptr
                                            ? 0
                                            : static_cast<int64_t>(shared->size) - reserved_shared};
      CountInstructions(code->bytes, &kernel);
      image.kernels.push_back(std::move(kernel));
    }
  }
  std::sort(image.kernels.begin(), image.kernels.end(),
            [](const CudaKernel& a, const CudaKernel& b) { return a.name < b.name; });
  return image;
}

}  // namespace

absl::StatusOr<std::vector<CudaImage>> ReadCudaImages(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const Bytes bytes = file.bytes();
  if (At<uint32_t>(bytes, 0) != kFatBinary) return Corrupt(path, ": not a fat binary");
  std::vector<CudaImage> images;
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (size_t at = text.find(ELFMAG); at != text.npos; at = text.find(ELFMAG, at + SELFMAG)) {
    const Bytes elf = bytes.subspan(at);
    if (At<uint16_t>(elf, offsetof(Elf64_Ehdr, e_machine)) != kMachineCuda) continue;
    DSV4_ASSIGN_OR_RETURN(CudaImage image, ReadImage(elf, path));
    images.push_back(std::move(image));
  }
  if (images.empty()) return Corrupt(path, ": no device code, or compressed");
  return images;
}

}  // namespace dsv4::test
