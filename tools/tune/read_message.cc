// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/read_message.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "google/protobuf/descriptor.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A key of a map, which may be anything, as a part of a path.
std::string InPath(const std::string& key) {
  const bool plain = key.size() < 64 && std::all_of(key.begin(), key.end(), [](char c) {
                       return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c));
                     });
  return plain ? key : Quoted(key);
}

// A value on its way into a field of a message; `path` is the key as errors name it.
class FieldReader {
 public:
  FieldReader(const std::string& source, Message* message, const FieldDescriptor* field)
      : source_(source), message_(message), field_(field) {}

  absl::Status Read(const JsonValue& value, const std::string& path) const {
    if (field_->is_map()) return ReadMap(value, path);
    if (!field_->is_repeated()) return ReadOne(value, path);
    const std::vector<JsonValue>* items = value.AsArray();
    if (items == nullptr) return WrongType(value, path, "an array");
    for (size_t i = 0; i < items->size(); ++i) {
      DSV4_RETURN_IF_ERROR(ReadOne((*items)[i], absl::StrCat(path, "[", i, "]")));
    }
    return absl::OkStatus();
  }

 private:
  const google::protobuf::Reflection& reflection() const { return *message_->GetReflection(); }

  absl::Status WrongType(const JsonValue& value, const std::string& path,
                         absl::string_view expected) const {
    return Corrupt(source_, ": ", path, " is not ", expected, " but of type ", value.KindName());
  }

  absl::Status ReadMap(const JsonValue& value, const std::string& path) const;
  absl::Status ReadOne(const JsonValue& value, const std::string& path) const;

  const std::string& source_;
  Message* const message_;
  const FieldDescriptor* const field_;
};

absl::Status ReadAt(const JsonValue& value, const std::string& source, const std::string& path,
                    Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  const std::string prefix = path.empty() ? "" : path + ".";
  if (const std::vector<JsonMember>* members = value.AsObject()) {
    for (const JsonMember& member : *members) {
      const FieldDescriptor* field = type.FindFieldByName(member.key);
      if (field == nullptr) {
        return Corrupt(source, ": ", prefix, Quoted(member.key), " is not a known key");
      }
      DSV4_RETURN_IF_ERROR(
          FieldReader(source, message, field).Read(member.value, prefix + member.key));
    }
  } else if (const std::vector<JsonValue>* items = value.AsArray()) {
    if (items->size() != static_cast<size_t>(type.field_count())) {
      return Corrupt(source, ": ", path, " has ", items->size(), " items, not ",
                     type.field_count());
    }
    for (int i = 0; i < type.field_count(); ++i) {
      DSV4_RETURN_IF_ERROR(
          FieldReader(source, message, type.field(i))
              .Read((*items)[static_cast<size_t>(i)], absl::StrCat(path, "[", i, "]")));
    }
  } else {
    return Corrupt(source, ": ", path.empty() ? "the document" : path, " is of type ",
                   value.KindName(), ", not an object");
  }
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->is_required() && !message->GetReflection()->HasField(*message, field)) {
      return Corrupt(source, ": ", prefix, field->name(), " is missing");
    }
  }
  return absl::OkStatus();
}

absl::Status FieldReader::ReadMap(const JsonValue& value, const std::string& path) const {
  const std::vector<JsonMember>* members = value.AsObject();
  if (members == nullptr) return WrongType(value, path, "an object");
  for (const JsonMember& member : *members) {
    Message* entry = reflection().AddMessage(message_, field_);
    entry->GetReflection()->SetString(entry, field_->message_type()->map_key(), member.key);
    DSV4_RETURN_IF_ERROR(FieldReader(source_, entry, field_->message_type()->map_value())
                             .ReadOne(member.value, absl::StrCat(path, ".", InPath(member.key))));
  }
  return absl::OkStatus();
}

absl::Status FieldReader::ReadOne(const JsonValue& value, const std::string& path) const {
  switch (field_->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ReadAt(value, source_, path,
                    field_->is_repeated() ? reflection().AddMessage(message_, field_)
                                          : reflection().MutableMessage(message_, field_));
    case FieldDescriptor::CPPTYPE_STRING:
      if (value.AsString() == nullptr) return WrongType(value, path, "a string");
      reflection().SetString(message_, field_, *value.AsString());
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM: {
      if (value.AsString() == nullptr) return WrongType(value, path, "a string");
      const EnumValueDescriptor* one = field_->enum_type()->FindValueByName(*value.AsString());
      if (one == nullptr) {
        return Corrupt(source_, ": ", path, " = ", Quoted(*value.AsString()), " is unknown");
      }
      reflection().SetEnum(message_, field_, one);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64: {
      const bool narrow = field_->cpp_type() == FieldDescriptor::CPPTYPE_INT32;
      const std::string* text = value.AsNumberText();
      if (text == nullptr) return WrongType(value, path, "an integer");
      const std::optional<int64_t> number = value.AsInt64();
      if (!number || (narrow && *number != static_cast<int32_t>(*number))) {
        return Corrupt(source_, ": ", path, " = ", text->substr(0, 40), " is not an integer of ",
                       narrow ? 32 : 64, " bits");
      }
      if (narrow) {
        reflection().SetInt32(message_, field_, static_cast<int32_t>(*number));
      } else {
        reflection().SetInt64(message_, field_, *number);
      }
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const std::string* text = value.AsNumberText();
      if (text == nullptr) return WrongType(value, path, "a number");
      double number = 0;
      if (!absl::SimpleAtod(*text, &number) || !std::isfinite(number)) {
        return Corrupt(source_, ": ", path, " = ", text->substr(0, 40), " is out of range");
      }
      reflection().SetDouble(message_, field_, number);
      return absl::OkStatus();
    }
    default:
      return Internal("a field of type ", field_->cpp_type_name());
  }
}

}  // namespace

absl::Status ReadMessage(const JsonValue& value, const std::string& source, Message* message) {
  return ReadAt(value, source, "", message);
}

}  // namespace dsv4
