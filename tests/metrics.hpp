#pragma once
// What a run wrote about its evaluations.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace examples {

/// The lines of a run's metrics.jsonl.
inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run) {
  std::vector<nlohmann::json> metrics;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) metrics.push_back(nlohmann::json::parse(line));
  return metrics;
}
/// The same without times, which differ from run to run.
inline std::vector<nlohmann::json> timeless_metrics_of(const std::filesystem::path& run) {
  auto metrics = metrics_of(run);
  for (auto& line : metrics)
    for (const char* time : {"tokens_per_s", "seconds"}) line.erase(time);
  return metrics;
}

}  // namespace examples
