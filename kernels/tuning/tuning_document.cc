// SPDX-License-Identifier: Apache-2.0
#include "kernels/tuning/tuning_document.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// A key of a map, which may be anything, as a part of a path.
std::string InPath(const std::string& key) {
  const bool plain = key.size() < 64 && std::all_of(key.begin(), key.end(), [](char c) {
                       return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c));
                     });
  return plain ? key : Quoted(key);
}

// One value of the document, and its path as errors name it; "" is the document.
class At {
 public:
  At(const JsonValue& value, const std::string& source, std::string path)
      : value_(value), source_(source), path_(std::move(path)) {}

  template <class... Args>
  absl::Status Fault(const Args&... reason) const {
    return Corrupt(source_, ": ", path_, reason...);
  }

  At Item(const JsonValue& value, size_t i) const {
    return {value, source_, absl::StrCat(path_, "[", i, "]")};
  }
  At Member(const JsonMember& member) const {
    return {member.value, source_, Prefix() + InPath(member.key)};
  }

  absl::Status Read(std::string* text) const {
    if (value_.AsString() == nullptr) return WrongType("a string");
    *text = *value_.AsString();
    return absl::OkStatus();
  }

  absl::Status Read(int64_t* number) const {
    if (value_.AsNumberText() == nullptr) return WrongType("an integer");
    const std::optional<int64_t> read = value_.AsInt64();
    if (!read) return NoInteger(64);
    *number = *read;
    return absl::OkStatus();
  }

  absl::Status Read(int32_t* number) const {
    int64_t wide = 0;
    if (value_.AsNumberText() != nullptr && !value_.AsInt64()) return NoInteger(32);
    DSV4_RETURN_IF_ERROR(Read(&wide));
    if (wide != static_cast<int32_t>(wide)) return NoInteger(32);
    *number = static_cast<int32_t>(wide);
    return absl::OkStatus();
  }

  absl::Status Read(double* number) const {
    const std::string* text = value_.AsNumberText();
    if (text == nullptr) return WrongType("a number");
    if (!absl::SimpleAtod(*text, number) || !std::isfinite(*number)) {
      return Fault(" = ", text->substr(0, 40), " is out of range");
    }
    return absl::OkStatus();
  }

  absl::Status Read(TuningRange* range) const {
    DSV4_ASSIGN_OR_RETURN(const std::vector<JsonValue>* items, Items());
    if (items->size() != 2) return Fault(" has ", items->size(), " items, not 2");
    DSV4_RETURN_IF_ERROR(Item((*items)[0], 0).Read(&range->first));
    return Item((*items)[1], 1).Read(&range->last);
  }

  template <class T>
  absl::Status Read(std::map<std::string, T>* map) const {
    DSV4_ASSIGN_OR_RETURN(const std::vector<JsonMember>* members, Members());
    for (const JsonMember& member : *members) {
      DSV4_RETURN_IF_ERROR(Member(member).Read(&(*map)[member.key]));
    }
    return absl::OkStatus();
  }

  template <class T>
  absl::Status Read(std::vector<T>* list) const {
    DSV4_ASSIGN_OR_RETURN(const std::vector<JsonValue>* items, Items());
    for (size_t i = 0; i < items->size(); ++i) {
      DSV4_RETURN_IF_ERROR(Item((*items)[i], i).Read(&list->emplace_back()));
    }
    return absl::OkStatus();
  }

  absl::Status Read(TuningDocument* document) const;
  absl::Status Read(TuningDocument::Entry* entry) const;

  // A message: an object whose keys are those of `fields`, each a Field below. Optional fields and
  // repeated ones may be absent.
  template <class... Fields>
  absl::Status ReadMessage(const Fields&... fields) const {
    DSV4_ASSIGN_OR_RETURN(const std::vector<JsonMember>* members, Members());
    for (const JsonMember& member : *members) {
      bool known = false;
      absl::Status status;
      const auto read_if = [&](const auto& field) {
        if (member.key != field.key) return;
        known = true;
        status = field.Read(Member(member));
      };
      (read_if(fields), ...);
      if (!known) {
        return Corrupt(source_, ": ", Prefix(), Quoted(member.key), " is not a known key");
      }
      DSV4_RETURN_IF_ERROR(status);
    }
    const char* missing = nullptr;
    const auto look = [&](const auto& field) {
      if (missing == nullptr && field.required && value_.Find(field.key) == nullptr) {
        missing = field.key;
      }
    };
    (look(fields), ...);
    if (missing != nullptr) return Corrupt(source_, ": ", Prefix(), missing, " is missing");
    return absl::OkStatus();
  }

 private:
  std::string Prefix() const { return path_.empty() ? "" : path_ + "."; }

  absl::Status WrongType(absl::string_view expected) const {
    return Corrupt(source_, ": ", path_.empty() ? "the document" : path_, " is not ", expected,
                   " but of type ", value_.KindName());
  }
  absl::Status NoInteger(int bits) const {
    return Fault(" = ", value_.AsNumberText()->substr(0, 40), " is not an integer of ", bits,
                 " bits");
  }
  absl::StatusOr<const std::vector<JsonValue>*> Items() const {
    if (value_.AsArray() == nullptr) return WrongType("an array");
    return value_.AsArray();
  }
  absl::StatusOr<const std::vector<JsonMember>*> Members() const {
    if (value_.AsObject() == nullptr) return WrongType("an object");
    return value_.AsObject();
  }

  const JsonValue& value_;
  const std::string& source_;
  const std::string path_;
};

template <class T>
struct Field {
  const char* key;
  T* place;
  bool required;
  absl::Status Read(const At& at) const { return at.Read(place); }
};
template <class T>
Field<T> Required(const char* key, T* place) {
  return {key, place, true};
}
template <class T>
Field<T> Optional(const char* key, T* place) {
  return {key, place, false};
}

// A required message within another; `read` calls its ReadMessage.
template <class F>
struct Nested {
  const char* key;
  F read;
  bool required = true;
  absl::Status Read(const At& at) const { return read(at); }
};
template <class F>
Nested(const char*, F) -> Nested<F>;

absl::Status At::Read(TuningDocument::Entry* entry) const {
  return ReadMessage(Optional("when", &entry->when), Optional("config", &entry->config),
                     Required("median_us", &entry->median_us),
                     Required("floor_us", &entry->floor_us));
}

absl::Status At::Read(TuningDocument* document) const {
  auto& device = document->device;
  auto& provenance = document->provenance;
  return ReadMessage(
      Required("schema", &document->schema), Required("operator", &document->op),
      Required("impl", &document->impl), Required("impl_rev", &document->impl_rev),
      Nested{"device",
             [&](const At& at) {
               return at.ReadMessage(Required("name", &device.name), Required("cc", &device.cc),
                                     Required("sm_count", &device.sm_count));
             }},
      Nested{"toolchain",
             [&](const At& at) {
               return at.ReadMessage(Required("cuda", &document->toolchain.cuda));
             }},
      Nested{"provenance",
             [&](const At& at) {
               return at.ReadMessage(
                   Required("bench", &provenance.bench), Required("commit", &provenance.commit),
                   Required("date", &provenance.date), Required("clock", &provenance.clock));
             }},
      Optional("default", &document->fallback), Optional("entries", &document->entries));
}

}  // namespace

absl::StatusOr<TuningDocument> ReadTuningDocument(const JsonValue& value,
                                                  const std::string& source) {
  TuningDocument document;
  DSV4_RETURN_IF_ERROR(At(value, source, "").Read(&document));
  return document;
}

}  // namespace dsv4
