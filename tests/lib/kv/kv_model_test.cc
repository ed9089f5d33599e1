// SPDX-License-Identifier: Apache-2.0
// Random operations on several sequences in a cache too small for them: after each, every sequence
// shows exactly what its own tokens say, and in the end every block is back.
#include <memory>
#include <random>
#include <set>

#include "lib/base/error.h"
#include "tests/lib/kv/fake_forward.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::FakeForward;
using test::FakeSession;
using test::Text;

constexpr int32_t kSessions = 5;
constexpr int64_t kContext = 2048;

// What the cache promises to remember of a sequence: a lower bound of what it can go back to.
class Promises {
 public:
  void Committed(int64_t before, int64_t length) {
    for (int64_t p = before / 256 * 256 + 256; p <= length; p += 256) points_.insert(p);
  }
  void TurnEnd(int64_t length) {
    turn_ends_.insert(length);
    if (turn_ends_.size() > 8) turn_ends_.erase(turn_ends_.begin());
  }
  void Rewound(int64_t length) {
    points_.erase(points_.upper_bound(length), points_.end());
    turn_ends_.erase(turn_ends_.upper_bound(length), turn_ends_.end());
  }
  int64_t Last(int64_t tokens) const {
    int64_t last = 0;
    for (const std::set<int64_t>* points : {&points_, &turn_ends_}) {
      const auto after = points->upper_bound(tokens);
      if (after != points->begin()) last = std::max(last, *std::prev(after));
    }
    return last;
  }

 private:
  std::set<int64_t> points_, turn_ends_;  // a context this short keeps every block boundary
};

struct Actor {
  FakeSession session;
  Promises promises;
  bool from_image = false;  // its points go when it adopts a prefix
};

struct Saved {
  Text text;
  std::vector<std::byte> image;
};

class World {
 public:
  World(RowFormat format, bool mtp, uint32_t seed) : random_(seed) {
    cache = KvCache::Create({.compress_ratios = mtp ? std::vector<int32_t>{0, 4, 128, 0}
                                                    : std::vector<int32_t>{4, 128},
                             .mtp_layers = mtp ? 1 : 0,
                             .row_format = format,
                             .streams_bytes = mtp ? 96 : 0,
                             .context_tokens = kContext,
                             .cache_tokens = 1280,
                             .max_sequences = kSessions,
                             .max_step_tokens = 256,
                             .max_draft_tokens = 7},
                            *device)
                .value();
    forward = std::make_unique<FakeForward>(cache.get());
    actors.resize(kSessions);
    // Texts that agree up to some point, so that prefixes are met again.
    for (int i = 0; i < 4; ++i) {
      std::vector<int32_t> script = i == 0 ? std::vector<int32_t>{} : scripts_[0];
      script.resize(static_cast<size_t>(i * 300));
      while (script.size() < kContext) script.push_back(Below(5));
      scripts_.push_back(script);
    }
  }

  void Act() {
    std::unique_ptr<Actor>& actor = actors[static_cast<size_t>(Below(kSessions))];
    if (actor == nullptr) return Open(actor);
    switch (Below(22)) {
      case 0:
        return Fork(*actor);
      case 1:
        return Rewind(*actor);
      case 2:
      case 3:
        return Adopt(*actor);
      case 4:
        return actor->session.kv.MarkTurnEnd(), actor->promises.TurnEnd(actor->session.kv.length());
      case 5:
        return Save(*actor);
      case 6:
        return Restore(*actor);
      case 7:
        return actor.reset();
      case 8:
        return Abandon(*actor);
      case 9:
      case 10:
      case 11:
        return Verify(*actor);
      default:
        return Prefill(*actor);
    }
  }

  // After each operation.
  void Check() {
    int64_t wrong = 0, broken_promises = 0;
    for (const std::unique_ptr<Actor>& actor : actors) {
      if (actor == nullptr) continue;
      wrong += actor->session.Mismatches();
      const int64_t length = actor->session.kv.length();
      const int64_t asked = Below(static_cast<int32_t>(length + 1));
      // A fork goes back in its place, while one more sequence may be open.
      if (cache->use().sequences == kSessions) continue;
      KvSequence fork = actor->session.kv.Fork().value();
      broken_promises += fork.Rewind(asked) < actor->promises.Last(asked);
    }
    REQUIRE(wrong == 0);
    REQUIRE(broken_promises == 0);
    REQUIRE(forward->bad_writes == 0);
    const MutexLock lock(cache->mutex());
    for (const BlockPool* pool :
         {&cache->window_pool(), &cache->compressed_pool(), &cache->state_pool()}) {
      int64_t unheld = 0, impossible = 0;
      for (int32_t block = 0; block < pool->size(); ++block) {
        unheld += pool->references(block) == 0;
        impossible += pool->references(block) < pool->cached_references(block) ||
                      pool->cached_references(block) < 0;
      }
      REQUIRE(unheld == pool->free_blocks());
      REQUIRE(impossible == 0);
    }
  }

  std::unique_ptr<Device> device = Device::Open({.threads = 1}).value();
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<FakeForward> forward;
  std::vector<std::unique_ptr<Actor>> actors;
  int64_t full = 0, adopted = 0, copied = 0, rejected = 0, restored = 0;

 private:
  int32_t Below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(n)); }

  void Open(std::unique_ptr<Actor>& actor) {
    absl::StatusOr<KvSequence> kv =
        KvSequence::Open(cache.get(), static_cast<uint64_t>(Below(8) == 0));
    REQUIRE_OK(kv);
    actor = std::make_unique<Actor>(Actor{FakeSession(*std::move(kv), forward.get()), {}, false});
  }

  // The next tokens of a script that agrees so far, or of none.
  std::vector<int32_t> Next(const FakeSession& session, int64_t count) {
    const size_t length = static_cast<size_t>(session.text.size());
    const std::vector<int32_t>& script = scripts_[static_cast<size_t>(Below(4))];
    std::vector<int32_t> next;
    for (size_t i = length; i < length + static_cast<size_t>(count); ++i) {
      next.push_back(Below(200) == 0 ? Below(5) : script[i]);
    }
    return next;
  }

  void Took(Actor& actor, const absl::Status& status, int64_t before) {
    if (status.ok()) return actor.promises.Committed(before, actor.session.kv.length());
    // Windows and states are planned to last for every sequence.
    REQUIRE_FAILS(status, OutOfBlocks().code(), "compressed-row");
    REQUIRE(actor.session.kv.length() == before);
    ++full;
  }

  void Prefill(Actor& actor) {
    const int64_t before = actor.session.kv.length();
    const int64_t rows = std::min<int64_t>(1 + Below(Below(2) == 0 ? 256 : 20), kContext - before);
    if (rows == 0) return;
    Took(actor, actor.session.Step(Next(actor.session, rows), rows, false, 0, before + rows / 2),
         before);
  }

  // Drafts; some are rejected.
  void Verify(Actor& actor) {
    const int64_t before = actor.session.kv.length();
    const int64_t rows = std::min<int64_t>(1 + Below(8), kContext - before);
    if (rows == 0) return;
    const int64_t drafts = std::min<int64_t>(Below(9), kContext - before - rows);
    const int64_t kept = 1 + Below(static_cast<int32_t>(rows));
    rejected += rows - kept;
    Took(actor, actor.session.Step(Next(actor.session, rows), kept, true, drafts), before);
  }

  // A step that fails half-way: its rows are written, nothing is committed.
  void Abandon(Actor& actor) {
    const int64_t length = actor.session.kv.length();
    const int64_t rows = std::min<int64_t>(1 + Below(256), kContext - length);
    if (rows == 0 || !actor.session.kv.Reserve(rows).ok()) return;
    Text tried = actor.session.text;
    tried.Append(std::vector<int32_t>(static_cast<size_t>(rows), 77));
    forward->Forward(actor.session.kv.Rows(0), tried);
    if (Below(2) == 0) actor.session.kv.Commit(0);
  }

  void Rewind(Actor& actor) {
    const int64_t length = actor.session.kv.length();
    const int64_t back = Below(3) > 0 ? Below(12) : Below(700);
    const int64_t asked = std::max<int64_t>(0, length - back);
    const int64_t target = actor.session.Rewind(asked);
    REQUIRE(target <= asked);
    actor.promises.Rewound(target);
    actor.from_image &= target > 0;
  }

  void Adopt(Actor& actor) {
    std::vector<int32_t> tokens = scripts_[static_cast<size_t>(Below(4))];
    tokens.resize(static_cast<size_t>(1 + Below(kContext - 1)));
    const int64_t size = static_cast<int64_t>(tokens.size()), max = size - Below(2);
    const std::vector<int32_t>& text = actor.session.text.tokens();
    const int64_t known = std::min<int64_t>(
        max, std::mismatch(tokens.begin(), tokens.end(), text.begin(), text.end()).first -
                 tokens.begin());
    const PrefixReuse reuse = actor.session.Adopt(tokens, max);
    REQUIRE(reuse.own_tokens <= known);
    REQUIRE(reuse.own_tokens >= actor.promises.Last(known));
    REQUIRE(reuse.tokens() <= max);
    REQUIRE(actor.session.kv.length() == reuse.tokens());
    REQUIRE(reuse.limit_position >= reuse.tokens());
    adopted += reuse.cached_tokens > 0;
    const bool replaced = actor.from_image && reuse.cached_tokens > 0;
    actor.promises.Rewound(replaced ? 0 : reuse.own_tokens);
    actor.from_image &= !replaced && reuse.tokens() > 0;
  }

  // In place of another, if need be.
  void Fork(Actor& actor) {
    std::unique_ptr<Actor>& other = actors[static_cast<size_t>(Below(kSessions))];
    if (other.get() == &actor) return;
    if (cache->use().sequences == kSessions) {
      REQUIRE_FAILS(actor.session.kv.Fork(), OutOfBlocks().code(), "sequences");
    }
    other.reset();
    absl::StatusOr<KvSequence> kv = actor.session.kv.Fork();
    REQUIRE_OK(kv);
    other = std::make_unique<Actor>(
        Actor{FakeSession(*std::move(kv), forward.get()), actor.promises, actor.from_image});
    other->session.text = actor.session.text;
    ++copied;
  }

  void Save(Actor& actor) {
    saved_.text = actor.session.text;
    saved_.image.assign(static_cast<size_t>(actor.session.kv.ImageBytes()), std::byte{0});
    REQUIRE_OK(actor.session.kv.WriteImage(absl::MakeSpan(saved_.image)));
  }

  void Restore(Actor& actor) {
    const int64_t before = actor.session.kv.length();
    const absl::Status status = actor.session.kv.ReadImage(saved_.text.size(), saved_.image);
    if (!status.ok()) {
      REQUIRE(IsOutOfBlocks(status));
      REQUIRE(actor.session.kv.length() == before);
      ++full;
      return;
    }
    actor.session.text = saved_.text;
    actor.promises = {};
    actor.from_image = true;
    ++restored;
    std::vector<std::byte> again(saved_.image.size());
    REQUIRE_OK(actor.session.kv.WriteImage(absl::MakeSpan(again)));
    REQUIRE(again == saved_.image);
  }

  std::mt19937 random_;
  std::vector<std::vector<int32_t>> scripts_;
  Saved saved_;
};

TEST_CASE("whatever happens to them, sequences show what their own tokens say") {
  const RowFormat format = GENERATE(RowFormat::kFp8PerTensor, RowFormat::kPacked);
  const bool mtp = GENERATE(true, false);
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(RowFormatName(format), mtp, seed);
    World world(format, mtp, seed);
    for (int i = 0; i < 1500; ++i) {
      CAPTURE(i);
      world.Act();
      world.Check();
    }
    // The run met what it is about.
    REQUIRE(world.full > 10);
    REQUIRE(world.adopted > 5);
    REQUIRE(world.copied > 5);
    REQUIRE(world.rejected > 100);
    REQUIRE(world.restored > 2);
    world.actors.clear();
    const KvUse use = world.cache->use();
    REQUIRE(use.sequences == 0);
    REQUIRE(use.windows.held() == 0);
    REQUIRE(use.compressed.held() == 0);
    REQUIRE(use.states.held() == 1);  // the empty state
    // All that is left is the prefix cache's, and it gives it back.
    const MutexLock lock(world.cache->mutex());
    REQUIRE_OK(world.cache->MakeRoom(use.windows.size, use.compressed.size, use.states.size - 1));
    REQUIRE(world.cache->prefixes().nodes() == 0);
  }
}

}  // namespace
}  // namespace dsv4
