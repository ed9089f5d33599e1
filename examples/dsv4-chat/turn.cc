// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/turn.h"

#include <chrono>
#include <cstdio>

#include "examples/dsv4-chat/amounts.h"
#include "examples/dsv4-chat/progress_bar.h"
#include "examples/dsv4-chat/terminal.h"

namespace chat {
namespace {

using Clock = std::chrono::steady_clock;

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

// "" with rows that give the numerics' own results.
std::string RowStatisticsOf(const dsv4::EngineInfo& info) {
  return info.cache_format == DSV4_CACHE_FP8_PER_TENSOR ? " (fp8_per_tensor rows)" : "";
}

// "" without drafts.
std::string DraftStatisticsOf(const dsv4::SessionStats& stats) {
  if (stats.draft_steps == 0) return {};
  char text[160];
  std::snprintf(text, sizeof text,
                "; drafts %lld of %lld accepted (first ones %.0f %%), %.2f tokens a forward%s",
                static_cast<long long>(stats.accepted_tokens),
                static_cast<long long>(stats.drafted_tokens), 100 * stats.first_acceptance,
                stats.acceptance_length,
                stats.draft_stop == DSV4_DRAFT_STOP_NONE ? "" : ", given up: too few accepted");
  return text;
}

// "" if the device computes all experts and has them in its memory.
std::string ExpertStatisticsOf(const dsv4::EngineMetrics& metrics) {
  const uint64_t reads =
      metrics.device_expert_reads + metrics.host_expert_reads + metrics.disk_expert_reads;
  char text[200];
  std::string shared;
  if (metrics.cpu_expert_reads > 0) {
    std::snprintf(text, sizeof text, "; %s of experts computed by the CPU in %.1f s",
                  BytesText(static_cast<double>(metrics.cpu_read_bytes)).c_str(),
                  metrics.cpu_seconds);
    shared = text;
  }
  if (reads == 0) return shared;
  char host_time[40] = "";  // not known with the CPU backend
  if (metrics.host_read_seconds > 0) {
    std::snprintf(host_time, sizeof host_time, " (about %.1f s)", metrics.host_read_seconds);
  }
  std::snprintf(text, sizeof text,
                "; experts %.1f %% from the device (%s), %s from the host%s, %llu moved",
                100 * static_cast<double>(metrics.device_expert_reads) / static_cast<double>(reads),
                BytesText(static_cast<double>(metrics.device_read_bytes)).c_str(),
                BytesText(static_cast<double>(metrics.host_read_bytes)).c_str(), host_time,
                static_cast<unsigned long long>(metrics.moved_experts));
  std::string line = shared + text;
  if (metrics.streamed_bytes > 0) {
    std::snprintf(text, sizeof text, ", %s streamed in %.1f s",
                  BytesText(static_cast<double>(metrics.streamed_bytes)).c_str(),
                  metrics.stream_seconds);
    line += text;
  }
  if (metrics.disk_expert_reads == 0) return line;
  std::snprintf(text, sizeof text, ", %s from disk in %.1f s",
                BytesText(static_cast<double>(metrics.disk_read_bytes)).c_str(),
                metrics.disk_read_seconds);
  return line + text;
}

}  // namespace

TurnEnd RunTurn(dsv4::Session* session, const Screen& screen,
                const std::function<dsv4_finish()>& step) {
  const Clock::time_point start = Clock::now();
  const CancelOnInterrupt cancel(session->get());
  {
    ProgressBar bar("reading", screen.shows_progress());
    session->Prefill(0, bar.Callback());
  }
  TurnEnd end;
  while (end.finish == DSV4_FINISH_NONE && !Interrupted()) {
    try {
      end.finish = step();
    } catch (const dsv4::Error& error) {
      if (error.code() != DSV4_ERR_CANCELLED) throw;
      break;
    }
    if (end.first_token_seconds == 0)
      end.first_token_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  end.stats = session->stats();
  return end;
}

std::string StatisticsOf(const dsv4::Engine& engine, const TurnEnd& end) {
  const dsv4::SessionStats& stats = end.stats;
  char line[320];
  std::snprintf(
      line, sizeof line,
      "prompt %lld tokens (%lld cached + %lld new), prefill %.1f tok/s; generated %lld, "
      "decode %.1f tok/s; first token %.3f s; context %lld/%lld; cache %s",
      static_cast<long long>(stats.prompt_tokens), static_cast<long long>(stats.cached_tokens),
      static_cast<long long>(stats.prompt_tokens - stats.cached_tokens),
      PerSecond(stats.prefilled_tokens, stats.prefill_seconds),
      static_cast<long long>(stats.generated_tokens),
      PerSecond(stats.generated_tokens, stats.decode_seconds), end.first_token_seconds,
      static_cast<long long>(stats.used_tokens), static_cast<long long>(stats.context_tokens),
      BytesText(static_cast<double>(stats.cache_bytes)).c_str());
  return line + RowStatisticsOf(engine.info()) + DraftStatisticsOf(stats) +
         ExpertStatisticsOf(engine.metrics());
}

}  // namespace chat
