// SPDX-License-Identifier: Apache-2.0
// The tensors of an oracle case's checkpoint: their names, dtypes and shapes in the generator's
// order, and the rule by which random words become their elements. oracle_checkpoint.cc applies
// the rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/tensor/dtype.h"
#include "tools/verify/oracle_case.h"

namespace dsv4 {

// How the words of a tensor become its elements. A scale's word w adds w % 3 to an exponent.
enum class Fill {
  kE4M3,          // a signed magnitude
  kFp4Pair,       // any byte
  kE8M0,          // 127 + exponent + w % 3
  kE8M0OfBlocks,  // the largest kE8M0 of 128 x 128 elements
  kBf16,          // a signed magnitude times 2^exponent
  kNorm,          // bf16 in [0.75, 1.25)
  kF32,           // uniform in [-1, 1) times 2^exponent
  kHcScale,       // f32, 0.75 + uniform / 4
  kExperts,       // a row of K distinct expert numbers per word
  kPowerOfTwo,    // f32, 2^exponent, whatever the words
  kUneven,        // f32, 2^exponent * (1 + n / 64), n from 1 to 63
  kE4M3Powers,    // e4m3 of 2^(exponent + w % 3), each word for two elements
  kE4M3Uneven,    // e4m3 of 2^(exponent + w % 3) * (1 + n / 8), n from 0 to 7
  kFp4InE4M3,     // an element of kFp4Pair times 2^(6 + its scale's exponent - its block's largest)
};

struct CaseTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  Fill fill;
  int exponent = 0;
  std::string words = {};        // whose words are taken; empty: those of `name`
  std::string scale_words = {};  // of kFp4InE4M3
  int64_t columns = 0;           // of kFp4InE4M3 and kE8M0OfBlocks: elements in a row

  int64_t Bytes() const;
};

// REQUIRES: `oracle` comes from LoadOracleCase.
std::vector<CaseTensor> TensorsOfCase(const OracleCase& oracle);

}  // namespace dsv4
