// SPDX-License-Identifier: Apache-2.0
// Records of measurements, and the four forms in which they are written to standard output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/dsv4-bench/gpu_state.h"
#include "benchmarks/dsv4-bench/options.h"

namespace bench {

// Fields in the order in which they are given. All records of a run have the same ones.
class Record {
 public:
  struct Field {
    std::string name;
    std::string value;  // text as it is, numbers as JSON writes them
    bool is_text = false, is_list = false;
    bool missing = false;  // null, or an empty cell
  };

  void Text(std::string_view name, std::string_view value);
  void Integer(std::string_view name, int64_t value);
  // With the digits that give the same number again. One that is not finite is missing.
  void Real(std::string_view name, double value);
  void Missing(std::string_view name);
  // JSON alone has lists: `json` is one.
  void List(std::string_view name, std::string_view json);
  void List(std::string_view name, const std::vector<double>& values);

  const std::vector<Field>& fields() const { return fields_; }
  // Null when there is none of that name.
  const Field* Find(std::string_view name) const;

 private:
  std::vector<Field> fields_;
};

// Clocks, power and throttling while it was measured; missing where nothing is known.
void AddTo(Record* record, const GpuSummary& gpus);

// "[1, 2.5]"
std::string JsonList(const std::vector<double>& values);

// Writes each record as soon as it is given. Throws a chat::Failure when standard output cannot be
// written.
class Output {
 public:
  Output(Format format, bool serving) : format_(format), serving_(serving) {}
  void Write(const Record& record);
  // Ends the output. Also called after a failure, so that the output is complete.
  void End();

 private:
  Format format_;
  bool serving_;
  int records_ = 0;
};

}  // namespace bench
