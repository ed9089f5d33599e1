// SPDX-License-Identifier: Apache-2.0
// The bundled model with loud experts and budgets for them, and the outputs of its sessions.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/loud_experts.h"

namespace dsv4::test {

inline EngineOptions WithBudgets(const ExpertBudgets& budgets) {
  return Tested({.context_tokens = 512,
                 .max_sessions = 4,
                 .prefill_chunk_tokens = 9,
                 .max_draft_tokens = 2,
                 .weight_budgets = budgets});
}

inline EnginePlan PlanOf(const ExpertBudgets& budgets) {
  absl::StatusOr<EnginePlan> plan = Engine::Plan(LoudModel(), WithBudgets(budgets));
  REQUIRE_OK(plan);
  return *std::move(plan);
}

// As few experts on the device as possible, `on_host` on the host and the others on disk.
inline ExpertBudgets MostOnDisk(int64_t on_host) {
  ExpertBudgets budgets{.least = true};
  budgets.host_bytes = PlanOf(budgets).info().residency.host_bytes() - 1;
  const ResidencyPlan plan = PlanOf(budgets).info().residency;
  budgets.host_bytes = plan.stage_bytes + on_host * plan.expert_bytes;
  return budgets;
}

inline std::shared_ptr<Engine> OpenLoud(const EngineOptions& options) {
  return OpenBundled(options, LoudModel());
}

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  bool operator==(const Outcome&) const = default;
};

// Adds the tokens of `steps` steps.
inline void Step(Session& session, int steps, Outcome* outcome) {
  for (int i = 0; i < steps; ++i) {
    const absl::StatusOr<StepResult> step = session.Step();
    REQUIRE_OK(step);
    outcome->tokens.push_back(step->token);
  }
}

// Adds the tokens of a step that the session and a fork of it make together.
inline void StepWithFork(Session& session, Outcome* outcome) {
  const absl::StatusOr<std::unique_ptr<Session>> fork = session.Fork();
  REQUIRE_OK(fork);
  Session* const both[] = {&session, fork->get()};
  absl::StatusOr<StepResult> steps[2];
  REQUIRE_OK(Session::StepAll(both, absl::MakeSpan(steps)));
  for (const absl::StatusOr<StepResult>& step : steps) {
    REQUIRE_OK(step);
    outcome->tokens.push_back(step->token);
  }
}

}  // namespace dsv4::test
