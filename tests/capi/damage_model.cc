// SPDX-License-Identifier: Apache-2.0
// usage: damage_model MODEL_DIR OUT_DIR EDIT
// Makes OUT_DIR a copy of the model folder MODEL_DIR with one edit:
//   remove FILE                      without the file
//   truncate FILE BYTES              the first BYTES only
//   text FILE OLD NEW                a text file with NEW for the first OLD
//   header SHARD OLD NEW             the same in the header of a safetensors file
//   byte SHARD TENSOR INDEX VALUE    one byte of a tensor's data
// Files that the edit leaves alone become links. Exits 1, with the reason, when the edit finds
// nothing to change.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

[[noreturn]] void Fail(const std::string& message) { throw std::runtime_error(message); }

std::string Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Write(const fs::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  if (!file.flush()) Fail("cannot write " + path.string());
}

void ReplaceFirst(std::string* text, const std::string& old_text, const std::string& new_text) {
  const size_t at = text->find(old_text);
  if (at == std::string::npos) Fail("no \"" + old_text + "\" to replace");
  text->replace(at, old_text.size(), new_text);
}

// A safetensors file: the length of the header, the header, the data.
struct Shard {
  std::string header, data;

  explicit Shard(const std::string& file) {
    uint64_t length;
    std::memcpy(&length, file.data(), sizeof length);
    header = file.substr(sizeof length, length);
    data = file.substr(sizeof length + length);
  }
  std::string File() const {
    const uint64_t length = header.size();
    std::string file(reinterpret_cast<const char*>(&length), sizeof length);
    return file + header + data;
  }
  // Where the tensor's data begin.
  size_t OffsetOf(const std::string& tensor) const {
    static const std::string kOffsets = "\"data_offsets\":[";
    const size_t entry = header.find("\"" + tensor + "\":");
    if (entry == std::string::npos) Fail("no tensor " + tensor);
    return std::stoull(header.substr(header.find(kOffsets, entry) + kOffsets.size()));
  }
};

// The new content of the edited file.
std::string Edited(const std::string& file, const std::vector<std::string>& edit) {
  const std::string& kind = edit[0];
  if (kind == "truncate" && edit.size() == 3) return file.substr(0, std::stoull(edit[2]));
  if (kind == "text" && edit.size() == 4) {
    std::string text = file;
    ReplaceFirst(&text, edit[2], edit[3]);
    return text;
  }
  if (kind == "header" && edit.size() == 4) {
    Shard shard(file);
    ReplaceFirst(&shard.header, edit[2], edit[3]);
    return shard.File();
  }
  if (kind == "byte" && edit.size() == 5) {
    Shard shard(file);
    shard.data.at(shard.OffsetOf(edit[2]) + std::stoull(edit[3])) =
        static_cast<char>(std::stoi(edit[4], nullptr, 0));
    return shard.File();
  }
  Fail("unknown edit " + kind);
}

void Damage(const fs::path& model, const fs::path& out, const std::vector<std::string>& edit) {
  fs::create_directories(out);
  if (!fs::exists(model / edit.at(1))) Fail("no file " + edit.at(1));
  for (const fs::directory_entry& entry : fs::directory_iterator(model)) {
    const fs::path name = entry.path().filename();
    if (name != edit[1]) {
      fs::create_symlink(fs::canonical(entry.path()), out / name);
    } else if (edit[0] != "remove") {
      Write(out / name, Edited(Read(entry.path()), edit));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: damage_model MODEL_DIR OUT_DIR EDIT\n";
    return 2;
  }
  try {
    Damage(argv[1], argv[2], {argv + 3, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "damage_model: " << error.what() << "\n";
    return 1;
  }
}
