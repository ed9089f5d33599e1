// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/json_equal.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"

namespace dsv4 {
namespace {

bool NumbersEqual(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  return a == b || (absl::SimpleAtod(a, &x) && absl::SimpleAtod(b, &y) && x == y);
}

}  // namespace

bool JsonEqual(const JsonValue& a, const JsonValue& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case JsonValue::Kind::kNull:
      return true;
    case JsonValue::Kind::kBool:
      return *a.AsBool() == *b.AsBool();
    case JsonValue::Kind::kNumber:
      return NumbersEqual(*a.AsNumberText(), *b.AsNumberText());
    case JsonValue::Kind::kString:
      return *a.AsString() == *b.AsString();
    case JsonValue::Kind::kArray: {
      const std::vector<JsonValue>&x = *a.AsArray(), &y = *b.AsArray();
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        if (!JsonEqual(x[i], y[i])) return false;
      }
      return true;
    }
    case JsonValue::Kind::kObject: {
      if (a.AsObject()->size() != b.AsObject()->size()) return false;
      for (const JsonMember& member : *a.AsObject()) {
        const JsonValue* other = b.Find(member.key);
        if (other == nullptr || !JsonEqual(member.value, *other)) return false;
      }
      return true;
    }
  }
  return false;
}

}  // namespace dsv4
