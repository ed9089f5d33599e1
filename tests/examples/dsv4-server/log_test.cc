// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/log.h"

#include <string>

#include "tests/support/catch.h"

namespace server {

TEST_CASE("A client can neither forge a line of the log nor control a terminal") {
  CHECK(Printable("plain, \"quoted\" \\ text") == "plain, \"quoted\" \\ text");
  CHECK(Printable("a\nb\r\tc") == "a\\x0ab\\x0d\\x09c");
  CHECK(Printable("\x1b[2Jx\x7f") == "\\x1b[2Jx\\x7f");
  CHECK(Printable(std::string("a\0b", 3)) == "a\\x00b");
  // UTF-8 stays; C1 controls, surrogates, overlong forms and lone bytes do not.
  CHECK(Printable("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(Printable("\xc2\x9b"
                  "1m") == "\\xc2\\x9b1m");
  CHECK(Printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(Printable("\xc0\x8a") == "\\xc0\\x8a");
  CHECK(Printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(Printable("a\xff") == "a\\xff");
  CHECK(Printable("\xe2\x82") == "\\xe2\\x82");
  CHECK(Printable(std::string(100000, 'a')).size() < 3000);
}

}  // namespace server
