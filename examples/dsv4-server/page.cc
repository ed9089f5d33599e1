// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/page.h"

namespace server {

// Of the source that the build makes of the files.
extern const std::string_view kIndexHtml, kPageCss, kPageJs, kMarkdownJs, kMarkedJs;

namespace {

constexpr char kScriptType[] = "text/javascript; charset=utf-8";

}  // namespace

const char kPagePolicy[] =
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "require-trusted-types-for 'script'; trusted-types 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

std::array<PageFile, 5> PageFiles() {
  return {{{"/", "text/html; charset=utf-8", kIndexHtml},
           {"/page.css", "text/css; charset=utf-8", kPageCss},
           {"/page.js", kScriptType, kPageJs},
           {"/markdown.js", kScriptType, kMarkdownJs},
           {"/marked.js", kScriptType, kMarkedJs}}};
}

}  // namespace server
