// Runs that are stopped in every way there is, and go on as if nothing had been.

#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/trainer.hpp"
#include "files.hpp"
#include "metrics.hpp"
#include "program.hpp"

namespace examples::resume_test {
namespace {

namespace fs = std::filesystem;
using xtape::read_bytes;
using xtape::TemporaryFolder;

/// A run of less than a second, with all that is random in one.
const std::string small =
    "--width 16 --heads 2 --layers 1 --length 4 --letters 20 --batch 8 --dropout 0.1 --seed 5 --threads 1 --keep 100 ";
const std::string small_run = small + "--steps 24 --evaluate_every 4";

Finished copy_task(const std::string& flags) { return run_program(XTAPE_COPY_TASK " " + flags); }

/// Whether two runs have come to the same end: every byte of the model and of the last checkpoint, and all metrics but
/// times.
testing::AssertionResult same_end(const fs::path& a, const fs::path& b, const std::string& last = "checkpoint-24") {
  for (const std::string& name : {std::string("model.safetensors"), last + "/model.safetensors",
                                  last + "/optimizer.safetensors", last + "/state.json"}) {
    const std::string bytes = read_bytes(a / name);
    if (bytes.empty() || bytes != read_bytes(b / name)) return testing::AssertionFailure() << name << " differs";
  }
  if (timeless_metrics_of(a) != timeless_metrics_of(b)) return testing::AssertionFailure() << "metrics.jsonl differs";
  return testing::AssertionSuccess();
}

const std::string long_step = "--batch 65536 --length 4 --width 8 --heads 1 --layers 1 --threads 1";

/// The run that is never stopped.
class Resume : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    ASSERT_EQ(copy_task(small_run + " --out " + whole().string()).code, 2);
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static fs::path whole() { return *folder_ / "whole"; }
  /// A folder of its own for a test.
  static fs::path fresh(const std::string& name) { return *folder_ / name; }
  static fs::path copy_of_whole(const std::string& name) {
    fs::copy(whole(), fresh(name), fs::copy_options::recursive);
    return fresh(name);
  }

 private:
  static inline std::unique_ptr<TemporaryFolder> folder_;
};

TEST_F(Resume, FromEveryCheckpointWithOtherThreadsEndsInTheSameBits) {
  EXPECT_EQ(timeless_metrics_of(whole()).size(), 6U);
  for (int step = 4; step < 24; step += 4) {
    const fs::path run = copy_of_whole("from" + std::to_string(step));
    fs::remove(run / "model.safetensors");
    fs::remove_all(run / "checkpoint-24");  // made again
    const Finished end = copy_task(fmt::format("--resume {}/checkpoint-{} --threads 2", run.string(), step));
    EXPECT_EQ(end.code, 2) << end.output;
    EXPECT_TRUE(holds(end.output, fmt::format("goes on from step {} of 24", step))) << end.output;
    EXPECT_TRUE(same_end(whole(), run)) << step;
  }
}

TEST_F(Resume, StoppedAgainAndAgainEndsInTheSameBits) {
  const fs::path run = fresh("stopped");
  std::string begin = small_run + " --out ";
  for (const int step : {1, 2, 4, 7, 13, 23}) {
    const Finished stop = copy_task(fmt::format("{}{} --stop_after {}", begin, run.string(), step));
    EXPECT_EQ(stop.code, 0) << stop.output;
    EXPECT_TRUE(holds(stop.output, fmt::format("stopped after step {} of 24; --resume {} goes on", step, run.string())))
        << stop.output;
    EXPECT_EQ(read_bytes(run / "latest"), fmt::format("checkpoint-{}\n", step));
    EXPECT_FALSE(fs::exists(run / "model.safetensors")) << "that is what a finished run leaves";
    begin = fmt::format("--threads {} --resume ", 1 + step % 3);
  }
  EXPECT_EQ(copy_task(begin + run.string()).code, 2);
  EXPECT_TRUE(same_end(whole(), run));
  const Finished late = copy_task(fmt::format("--resume {}/checkpoint-23 --stop_after 7", run.string()));
  EXPECT_EQ(late.code, 0);
  EXPECT_TRUE(holds(late.output, "stopped after step 23 of 24")) << "it was there already: " << late.output;
}

TEST_F(Resume, OfAFinishedRunSaysSoAndJudgesIt) {
  const fs::path run = copy_of_whole("finished");
  const Finished again = copy_task("--resume " + run.string());
  EXPECT_EQ(again.code, 2);
  EXPECT_TRUE(holds(again.output, "has finished, with step 24 of 24")) << again.output;
  EXPECT_TRUE(holds(again.output, "of 1000 sequences that it never met")) << again.output;
  EXPECT_TRUE(same_end(whole(), run));
}

TEST_F(Resume, TakesTheSettingsOfTheCheckpointAndNoOthers) {
  for (const char* flag : {"--seed 5", "--steps 30", "--task addition", "--config x.json", "--out elsewhere",
                           "--overwrite", "--dropout 0", "--attention_only"}) {
    const Finished refused = copy_task("--resume " + whole().string() + " " + flag);
    EXPECT_EQ(refused.code, 1) << flag;
    EXPECT_TRUE(holds(refused.output, "does not go with --resume")) << refused.output;
  }
  const fs::path run = copy_of_whole("settings");
  EXPECT_EQ(copy_task("--resume " + run.string() + "/checkpoint-20/ --threads 3 --keep 1").code, 2);
  EXPECT_EQ(read_bytes(run / "config.json"), read_bytes(whole() / "config.json"));
  EXPECT_FALSE(fs::exists(run / "checkpoint-16"));
}

TEST_F(Resume, ARunIsNotOverwrittenUnasked) {
  const fs::path run = copy_of_whole("taken");
  const Finished refused = copy_task("--steps 4 --out " + run.string());
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(holds(refused.output, "holds a run already") && holds(refused.output, "--resume " + run.string()))
      << refused.output;
  EXPECT_TRUE(same_end(whole(), run));
  EXPECT_EQ(copy_task(small + " --steps 8 --evaluate_every 4 --overwrite --out " + run.string()).code, 2);
  EXPECT_EQ(timeless_metrics_of(run).size(), 2U);
  EXPECT_FALSE(fs::exists(run / "checkpoint-24"));
}

TEST_F(Resume, WhatCannotBeDoneIsASentence) {
  const fs::path file = fresh("file");
  std::ofstream(file) << "x";
  const auto refused = [](const std::string& flags, const std::string& sentence) {
    const Finished run = copy_task(flags);
    EXPECT_EQ(run.code, 1) << flags;
    EXPECT_TRUE(holds(run.output, sentence)) << run.output;
  };
  refused("--out " + file.string(), "file cannot be made a folder");
  refused("--out " + file.string() + "/inside", "cannot be made a folder");
  refused("--resume " + file.string(), "there is no folder");
  refused("--resume " + fresh("none").string(), "there is no folder");
  refused("--resume " + whole().string() + "/checkpoint-5", "checkpoint-24 is whole: resume from that");
  refused("--stop_after 3", "--stop_after needs --out");
  refused("--keep 0 --out x", "--keep");
  refused("--stop_after 0 --out x", "--stop_after");

  const fs::path run = copy_of_whole("damaged");
  fs::resize_file(run / "checkpoint-24" / "optimizer.safetensors", 1000);
  refused("--resume " + run.string(), "checkpoint-20 is whole: resume from that");
  std::ofstream(run / "checkpoint-20" / "state.json") << "{";
  refused("--resume " + run.string(), "checkpoint-16 is whole: resume from that");
  std::ofstream(run / "latest") << "nothing";
  refused("--resume " + run.string(), "latest names no checkpoint");
  EXPECT_EQ(copy_task("--resume " + run.string() + "/checkpoint-16").code, 2);
  EXPECT_TRUE(same_end(whole(), run));
}

// ---- signals

/// Starts copy_task; calls meanwhile(process) and returns what waitpid says of its end.
int status_of(const std::string& flags, const auto& meanwhile) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", ("exec " XTAPE_COPY_TASK " " + flags + " >/dev/null").c_str(), nullptr);
    ::_exit(127);
  }
  meanwhile(child);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

void wait_for(const fs::path& file) {
  for (int i = 0; i < 3000 && !fs::exists(file); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

TEST_F(Resume, ASignalEndsTheRunAfterTheStepAndNothingIsLost) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const fs::path run = fresh("signal" + std::to_string(signal)), other = fresh("other" + std::to_string(signal));
    // Many steps and rare evaluations, so that it is in the middle of training that the signal comes.
    const std::string flags = small + " --steps 1200 --evaluate_every 600 --out ";
    const int status = status_of(flags + run.string(), [&](pid_t process) {
      wait_for(run / "checkpoint-600");
      wait_for(run / "latest");
      ::kill(process, signal);
    });
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    EXPECT_NE(read_bytes(run / "latest"), "checkpoint-600\n");
    EXPECT_NE(read_bytes(run / "latest"), "checkpoint-1200\n");
    EXPECT_NE(copy_task("--threads 2 --resume " + run.string()).code, 1);
    EXPECT_NE(copy_task(flags + other.string()).code, 1);
    EXPECT_TRUE(same_end(other, run, "checkpoint-1200"));
  }
}

TEST_F(Resume, TheSecondSignalEndsItAtOnce) {
  const fs::path run = fresh("twice");
  const int status = status_of(long_step + " --out " + run.string(), [&](pid_t process) {
    wait_for(run / "metrics.jsonl");  // one step takes much longer than all this
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::kill(process, SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::kill(process, SIGTERM);
  });
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST_F(Resume, WithoutAFolderASignalEndsItAsEver) {
  const int status = status_of(long_step, [&](pid_t process) {
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
    ::kill(process, SIGTERM);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

// ---- writes that fail

TEST_F(Resume, O32_ADiskThatIsFullLeavesTheRunWhereItWas) {
  const fs::path run = fresh("full");
  ASSERT_EQ(copy_task(small_run + " --stop_after 10 --out " + run.string()).code, 0);
  for (const int kilobytes : {0, 1, 2, 8, 15, 30}) {
    const Finished full = run_program(
        fmt::format("trap '' XFSZ; ulimit -f {}; {} --resume {}", 2 * kilobytes, XTAPE_COPY_TASK, run.string()));
    EXPECT_EQ(full.code, 1) << full.output;
    EXPECT_TRUE(holds(full.output, "cannot be written")) << kilobytes << ": " << full.output;
    if (kilobytes > 1) {
      EXPECT_TRUE(holds(full.output, "--resume " + run.string() + " goes on")) << full.output;
    }
    EXPECT_EQ(read_bytes(run / "latest"), "checkpoint-10\n");
  }
  EXPECT_EQ(copy_task("--resume " + run.string()).code, 2);
  EXPECT_TRUE(same_end(whole(), run));
}

// ---- with a profile

nlohmann::json trace_in(const fs::path& file) { return nlohmann::json::parse(read_bytes(file)); }

TEST_F(Resume, WithAProfileOfEveryStepEndsInTheSameBits) {
  const fs::path profiled = fresh("profiled"), trace = fresh("rest.json");
  const Finished run = copy_task(small_run + " --profile --stop_after 10 --out " + profiled.string());
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(holds(run.output, "\nstep: 10 of ")) << run.output;
  EXPECT_TRUE(holds(run.output, " s, evaluation ")) << run.output;
  EXPECT_TRUE(holds(run.output, "\nlinear backward ")) << run.output;
  EXPECT_TRUE(holds(run.output, (profiled / "profile.json").string())) << run.output;
  std::map<std::string, int> counts;
  const nlohmann::json events = trace_in(profiled / "profile.json").at("traceEvents");
  for (const auto& event : events) ++counts[event.at("name")];
  for (const char* span : {"step", "batch", "forward", "backward", "require finite", "optimizer"})
    EXPECT_EQ(counts[span], 10);
  EXPECT_EQ(counts["checkpoint"], 3) << "two evaluations and the stop";
  EXPECT_EQ(counts["cross_entropy backward"], 10);

  const Finished rest = copy_task("--profile " + trace.string() + " --resume " + profiled.string());
  EXPECT_TRUE(holds(rest.output, "\nstep: 14 of ")) << rest.output;
  EXPECT_FALSE(trace_in(trace).at("traceEvents").empty());
  EXPECT_TRUE(same_end(profiled, whole()));
}

TEST_F(Resume, AProfileThatCannotBeWrittenIsRefusedBeforeTheTraining) {
  const Finished run = copy_task(small_run + " --profile /nowhere/profile.json");
  EXPECT_EQ(run.code, 1);
  EXPECT_TRUE(holds(run.output, "--profile: /nowhere/profile.json cannot be written")) << run.output;
  EXPECT_FALSE(holds(run.output, "step 4/24")) << run.output;
}

}  // namespace
}  // namespace examples::resume_test
