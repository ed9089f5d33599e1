// SPDX-License-Identifier: Apache-2.0
#include "lib/text/split_pattern.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/text/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include "pcre2.h"

namespace dsv4 {
namespace {

// Steps that one match may take. A linear pattern takes a few per byte; one that does not is
// stopped before it hangs the caller.
constexpr uint32_t kMatchStepsPerByte = 64;
constexpr uint32_t kMatchSteps = 1'000'000;
constexpr uint32_t kMatchHeapKib = 1 << 18;

// Rewrites a regex of Oniguruma for PCRE2. Only constructs on which both agree, or that can be
// rewritten so that they do, get through:
// - Oniguruma's \s is the property White_Space; PCRE2's has U+180E too.
// - The HF tokenizers library knows Unicode 16, PCRE2 10.42 knows 14: categories get the
// difference.
class RegexTranslator {
 public:
  explicit RegexTranslator(absl::string_view regex) : regex_(regex) {}

  absl::StatusOr<std::string> Translate() {
    while (i_ < regex_.size()) {
      DSV4_RETURN_IF_ERROR(in_class_ ? TranslateInClass() : TranslateOutside());
    }
    return std::move(out_);
  }

 private:
  absl::string_view Rest() const { return regex_.substr(i_); }
  bool Follows(absl::string_view s) const { return Rest().substr(0, s.size()) == s; }

  void Copy(size_t n) {
    out_.append(regex_.data() + i_, n);
    i_ += n;
  }

  absl::Status Refuse(size_t length) const {
    return Unsupported("regex ", Quoted(regex_), ": construct ", Quoted(Rest().substr(0, length)),
                       " at byte ", i_, " is not supported");
  }

  absl::Status TranslateOutside() {
    switch (regex_[i_]) {
      case '\\':
        return TranslateEscape();
      case '[':
        in_class_ = true;
        Copy(Follows("[^") ? 2 : 1);
        return Follows("]") ? Refuse(1) : absl::OkStatus();
      case '(':
        if (Follows("(?:") || Follows("(?=") || Follows("(?!")) {
          Copy(3);
          return absl::OkStatus();
        }
        if (Follows("(?") || Follows("(*")) return Refuse(4);
        Copy(1);
        return absl::OkStatus();
      case '{':
        return TranslateCount();
      case '^':
      case '$':
      case '.':
        return Refuse(1);
      default:
        Copy(1);
        return absl::OkStatus();
    }
  }

  absl::Status TranslateInClass() {
    if (Follows("[") || Follows("&&")) return Refuse(2);
    if (Follows("\\")) return TranslateEscape();
    if (Follows("]")) in_class_ = false;
    Copy(1);
    return absl::OkStatus();
  }

  // {m}, {m,} or {m,n}. Oniguruma reads {m}? and {m}+ otherwise than PCRE2.
  absl::Status TranslateCount() {
    size_t n = 1;
    const auto skip_digits = [&] {
      const size_t start = n;
      while (n < Rest().size() && absl::ascii_isdigit(Rest()[n])) ++n;
      return n > start;
    };
    if (!skip_digits()) return Refuse(2);
    if (Rest().substr(n, 1) == ",") {
      ++n;
      skip_digits();
    }
    if (Rest().substr(n, 1) != "}") return Refuse(n + 1);
    ++n;
    if (Rest().substr(n, 1) == "?" || Rest().substr(n, 1) == "+") return Refuse(n + 1);
    Copy(n);
    return absl::OkStatus();
  }

  absl::Status TranslateEscape() {
    const char c = Rest().size() > 1 ? Rest()[1] : '\0';
    switch (c) {
      case 'p':
      case 'P':
        return TranslateCategory(c == 'P');
      case 's':
      case 'S':
        absl::StrAppend(&out_, c == 's' ? "\\p" : "\\P", "{White_Space}");
        i_ += 2;
        return absl::OkStatus();
      case 'r':
      case 'n':
      case 't':
      case 'f':
        Copy(2);
        return absl::OkStatus();
      default:
        if (!absl::ascii_ispunct(c)) return Refuse(2);
        Copy(2);
        return absl::OkStatus();
    }
  }

  absl::Status TranslateCategory(bool negated) {
    const absl::string_view rest = Rest();
    const bool one_letter = rest.size() >= 5 && rest[2] == '{' && rest[4] == '}';
    const absl::string_view new_code_points =
        one_letter ? NewCodePointsOfCategory(rest[3]) : absl::string_view();
    if (new_code_points.empty()) return Refuse(rest.substr(0, 20).find('}') + 1);
    if (in_class_ && negated) return Refuse(5);
    const std::string items = absl::StrCat("\\p{", rest.substr(3, 1), "}", new_code_points);
    absl::StrAppend(&out_, in_class_ ? "" : negated ? "[^" : "[", items, in_class_ ? "" : "]");
    i_ += 5;
    return absl::OkStatus();
  }

  absl::string_view regex_;
  size_t i_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

MatchState::MatchState()
    : data_(pcre2_match_data_create(1, nullptr)), context_(pcre2_match_context_create(nullptr)) {
  if (context_) pcre2_set_heap_limit(context_.get(), kMatchHeapKib);
}

void MatchState::Deleter::operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }

void MatchState::Deleter::operator()(pcre2_match_context* context) const {
  pcre2_match_context_free(context);
}

void SplitPattern::Deleter::operator()(pcre2_code* code) const { pcre2_code_free(code); }

absl::StatusOr<SplitPattern> SplitPattern::FromRegex(absl::string_view regex, Engine engine) {
  DSV4_ASSIGN_OR_RETURN(const std::string pattern, RegexTranslator(regex).Translate());
  return Compile(regex, pattern, PCRE2_UTF | PCRE2_UCP, engine);
}

absl::StatusOr<SplitPattern> SplitPattern::FromLiteral(absl::string_view literal) {
  if (literal.empty()) return Corrupt("pattern: the string to split at is empty");
  return Compile(literal, literal, PCRE2_UTF | PCRE2_LITERAL, Engine::kJit);
}

absl::StatusOr<SplitPattern> SplitPattern::Compile(absl::string_view source,
                                                   absl::string_view pattern, uint32_t options,
                                                   Engine engine) {
  int error = 0;
  size_t place = 0;
  SplitPattern result;
  result.source_ = std::string(source);
  result.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options, &error, &place, nullptr));
  if (!result.code_) return Corrupt("regex ", Quoted(source), ": ", ErrorText(error));
  if (engine == Engine::kJit) {
    // Where it fails, matches run in the interpreter.
    (void)pcre2_jit_compile(result.code_.get(), PCRE2_JIT_COMPLETE);
  }
  return result;
}

absl::Status SplitPattern::ForEachPiece(
    absl::string_view text, MatchState& state,
    absl::FunctionRef<absl::Status(absl::string_view)> emit) const {
  if (text.empty()) return absl::OkStatus();
  if (!state.data_ || !state.context_) return OutOfHostMemory("no memory to match a regex");
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t emitted = 0;  // end of the pieces so far
  size_t from = 0;     // where the next search begins
  size_t last_match_end = absl::string_view::npos;
  while (from <= text.size()) {
    const uint64_t steps = kMatchSteps + kMatchStepsPerByte * static_cast<uint64_t>(text.size());
    pcre2_set_match_limit(state.context_.get(),
                          static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
    const auto match = [&](uint32_t options) {
      return pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | options,
                         state.data_.get(), state.context_.get());
    };
    int rc = match(0);
    // The interpreter keeps its backtracking points on the heap.
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return Unsupported("regex ", Quoted(source_), " on a text of ", text.size(),
                         " bytes: ", ErrorText(rc));
    }
    const size_t* bounds = pcre2_get_ovector_pointer(state.data_.get());
    const size_t start = bounds[0];
    const size_t end = bounds[1];
    if (start == end && end == last_match_end) {
      // As in the HF library: no empty match where the last one ended.
      if (from == text.size()) break;
      from += FirstUtf8Unit(text.substr(from)).length;
      continue;
    }
    if (start > emitted) DSV4_RETURN_IF_ERROR(emit(text.substr(emitted, start - emitted)));
    if (end > start) DSV4_RETURN_IF_ERROR(emit(text.substr(start, end - start)));
    emitted = from = last_match_end = end;
  }
  if (emitted < text.size()) return emit(text.substr(emitted));
  return absl::OkStatus();
}

}  // namespace dsv4
