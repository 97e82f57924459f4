// Shared-memory files: nothing stays behind, the files of dead runs are removed, those of live ones are not.
#include "collectives/shm/segment.h"

#include <dirent.h>

#include <algorithm>
#include <csignal>

#include "collectives/shm/layout.h"
#include "collectives/support.h"

namespace neuron::collectives::testing {
namespace {

std::vector<std::string> files() {
  std::vector<std::string> names;
  DIR* const folder = opendir("/dev/shm");
  while (const dirent* const entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.starts_with("softneuron-")) names.push_back(name);
  }
  closedir(folder);
  return names;
}
bool exists(const std::string& name) {
  const auto names = files();
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST(Segment, HasNoNameOnceAllRanksAreThere) {
  run_processes(3, [](int rank, KeyValueStore& store) {
    const auto communicator = join(store, rank, 3);
    require(!exists(store.get("g/segment", kPatience)), "the name is gone while the group works");
    communicator->barrier(call(1));
  });
}

TEST(Segment, OfADeadCreatorIsSweptAndOfALiveOneIsNot) {
  SharedStore store;
  const pid_t dead = fork();
  if (dead == 0) {
    const auto segment = Segment::create(1 << 20, 1 << 20);
    store.set("dead", segment->name());
    kill(getpid(), SIGKILL);
  }
  waitpid(dead, nullptr, 0);
  const std::string stale = store.get("dead", kPatience);
  EXPECT_TRUE(exists(stale));
  const pid_t live = fork();
  if (live == 0) {
    const auto segment = Segment::create(1 << 20, 1 << 20);  // sweeps
    store.set("live", segment->name());
    store.get("end", kPatience);
    std::_Exit(exists(segment->name()) ? 0 : 1);
  }
  const std::string other = store.get("live", kPatience);
  EXPECT_FALSE(exists(stale));
  const auto own = Segment::create(4096, 4096);
  for (int i = 0; i < 3; ++i) Segment::sweep();
  EXPECT_TRUE(exists(other));
  EXPECT_TRUE(exists(own->name())) << "a process does not sweep its own";
  store.set("end", "1");
  int status = 0;
  waitpid(live, &status, 0);
  EXPECT_EQ(status, 0);
  Segment::sweep();
  EXPECT_FALSE(exists(other)) << "left behind by _Exit";
}

TEST(Segment, IsRemovedByItsDestructor) {
  auto segment = Segment::create(4096, 4096);
  const std::string name = segment->name();
  EXPECT_TRUE(exists(name));
  segment.reset();
  EXPECT_FALSE(exists(name));
}

TEST(Segment, TellsLiveRanksFromDeadOnes) {
  const auto segment = Segment::create(4096, 4096);
  SharedStore store;
  const pid_t child = fork();
  if (child == 0) {
    // As another program would: a forked child's copy is not its own.
    const auto mine = Segment::create(4096, 4096);
    mine->hold(1);
    store.set("name", mine->name());
    while (true) pause();
  }
  const auto theirs = Segment::open(store.get("name", kPatience), 4096);
  EXPECT_TRUE(theirs->held_elsewhere(1));
  EXPECT_FALSE(theirs->held_elsewhere(2));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(theirs->held_elsewhere(1));
}

TEST(Segment, OfAnotherSizeOrNameIsRefused) {
  const auto segment = Segment::create(8192, 4096);
  const Thrown missing = error_of([] { Segment::open("softneuron-group-missing", 4096); });
  EXPECT_EQ(missing.code, ErrorCode::kSystem);
  EXPECT_TRUE(contains(missing.text, "one host")) << missing.text;
}

TEST(Segment, NothingStaysAfterKilledRuns) {
  for (int run = 0; run < 5; ++run) {
    // Killed at different times, among them while setting up.
    SharedStore store;
    std::vector<pid_t> children;
    for (int rank = 0; rank < 3; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        const auto communicator = join(store, rank, 3);
        while (true) communicator->barrier(call(1));
      }
      children.push_back(child);
    }
    std::this_thread::sleep_for(milliseconds(run * 2));
    for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children) waitpid(child, nullptr, 0);
  }
  run_processes(2, [](int rank, KeyValueStore& store) { join(store, rank, 2)->barrier(call(1)); });
  // Other tests run beside this one, and their files have names for a moment.
  for (int i = 0; i < 500 && !files().empty(); ++i) {
    Segment::sweep();
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(files(), std::vector<std::string>{});
}

TEST(Segment, OfThirtyTwoRanksFitsIntoAContainersSharedMemory) {
  EXPECT_LE(Layout(32).committed_bytes(), std::size_t{16} << 20);
  EXPECT_LE(Layout(2).committed_bytes(), std::size_t{2} << 20);
}

}  // namespace
}  // namespace neuron::collectives::testing
