// SPDX-License-Identifier: Apache-2.0
// The other process of a test of groups: the program group_member, which serves or leads a rank.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "lib/engine/engine.h"

namespace dsv4::test {

inline constexpr const char* kTestBuild = "the build under test";

// Limits of waits where no member fails (emulated kernels are slow), and where one fails.
inline constexpr std::chrono::seconds kPatience{300}, kHaste{2};

// Of the environment: a file, as long as which is there reads of experts fail in group_member.
inline constexpr const char* kFailingReads = "DSV4_TEST_FAILING_READS";

// Those of the tests' engines, on this process's GPU. Small, so that little is recorded. Ranks but
// 0 take them from the id.
EngineOptions GroupOptions(const std::string& id, int rank, std::chrono::seconds limit);
// The model folder of all processes: the bundled model, which two ranks can split, or kTestModel of
// the environment.
inline constexpr const char* kTestModel = "DSV4_TEST_MODEL";
std::string GroupModel();
// The same without a group.
EngineOptions AloneOptions();

// A running group_member.
class Member {
 public:
  // `role`: "serve", "lead", "die", which it does while it loads weights, or "shuffle", which
  // serves and moves experts at random. With other options where `context_tokens` is not 0.
  Member(const std::string& role, const std::string& id, int rank, std::chrono::seconds limit,
         int64_t context_tokens = 0);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void Signal(int signal) const;
  // The next line that it writes; "" at its end.
  std::string Line();
  // Waits for its end: "exit 0", "signal 9".
  std::string End();

 private:
  pid_t process_ = -1;
  int output_ = -1;
};

}  // namespace dsv4::test
