// SPDX-License-Identifier: Apache-2.0
//
// The smallest useful program in C++: asks the model in a folder one question and prints the answer
// as it comes. docs/embed.md shows it.
#include <dsv4/dsv4.hpp>
#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: " << argv[0] << " MODEL_DIR QUESTION\n";
    return 2;
  }
  try {
    const dsv4::Engine engine(argv[1]);
    dsv4::Conversation chat(engine);
    chat.Sync({{DSV4_ROLE_USER, argv[2]}});
    for (const dsv4::Event& event : chat.events()) {
      if (event.type == DSV4_PARSER_TEXT) std::cout << event.text << std::flush;
    }
    std::cout << "\n";
    return 0;
  } catch (const dsv4::Error& error) {
    std::cerr << error.name() << ": " << error.what() << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  return 1;
}
