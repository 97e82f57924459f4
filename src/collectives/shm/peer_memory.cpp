// See peer_memory.h.
#include "collectives/shm/peer_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "collectives/shm/process_identity.h"

namespace neuron::collectives {

// A whole file of another rank, mapped once per process.
class FileWindow {
 public:
  // Takes the mapping over.
  FileWindow(std::byte* base, std::size_t bytes) noexcept : base_(base), bytes_(bytes) {}
  ~FileWindow() { munmap(base_, bytes_); }
  FileWindow(const FileWindow&) = delete;
  FileWindow& operator=(const FileWindow&) = delete;
  [[nodiscard]] std::byte* base() const noexcept { return base_; }

  // Null when the file of `theirs` cannot be had.
  static std::shared_ptr<FileWindow> of(const MemoryFile& theirs, bool same_process);

 private:
  std::byte* base_;
  std::size_t bytes_;
};

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

class Descriptor {
 public:
  explicit Descriptor(int value) noexcept : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return value_; }

 private:
  int value_;
};

// At a multiple of 2 MiB, as the file's huge pages are; null on failure.
std::byte* map_aligned(int descriptor, std::size_t bytes) noexcept {
  void* const reserved = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    return nullptr;
  }
  auto* const start = static_cast<std::byte*>(reserved);
  const std::size_t head = (kHugePage - reinterpret_cast<std::uintptr_t>(start) % kHugePage) % kHugePage;
  std::byte* const base = start + head;
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, descriptor, 0) == MAP_FAILED) {
    munmap(start, bytes + kHugePage);
    return nullptr;
  }
  if (head != 0) munmap(start, head);
  if (head != kHugePage) munmap(base + bytes, kHugePage - head);
  // Nothing of a forked child, and not this process's to dump.
  madvise(base, bytes, MADV_DONTFORK);
  madvise(base, bytes, MADV_DONTDUMP);
  return base;
}

struct Windows {
  std::mutex mutex;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<FileWindow>> by_file;
  std::uint64_t generation = fork_generation();
};
Windows& windows() {
  static auto& all = *new Windows;  // leaked: communicators may be destroyed by static objects' destructors
  return all;
}

}  // namespace

std::shared_ptr<FileWindow> FileWindow::of(const MemoryFile& theirs, bool same_process) {
  if (theirs.bytes == 0) {
    return nullptr;
  }
  Windows& all = windows();
  const std::lock_guard guard(all.mutex);
  if (all.generation != fork_generation()) {  // a forked child has none of its parent's mappings
    all.by_file.clear();
    all.generation = fork_generation();
  }
  auto& known = all.by_file[{theirs.device, theirs.inode}];
  if (auto window = known.lock()) {
    return window;
  }
  const std::string process = same_process ? "self" : std::to_string(theirs.process);
  const Descriptor file(open(("/proc/" + process + "/fd/" + std::to_string(theirs.descriptor)).c_str(), O_RDWR | O_CLOEXEC));
  struct stat status{};
  // The number may belong to another process by now, or in this pid namespace.
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || status.st_dev != theirs.device || status.st_ino != theirs.inode ||
      static_cast<std::uint64_t>(status.st_size) != theirs.bytes) {
    return nullptr;
  }
  std::byte* const base = map_aligned(file.get(), theirs.bytes);
  if (base == nullptr) {
    return nullptr;
  }
  auto window = std::make_shared<FileWindow>(base, theirs.bytes);
  known = window;
  return window;
}

void publish_memory_file(RankState& mine, const runtime::SharedSegments* memory) noexcept {
  mine.memory = {};
  if (memory == nullptr) {
    return;
  }
  struct stat status{};
  if (const auto file = memory->file(); file && fstat(file->descriptor, &status) == 0) {
    mine.memory = {
        .device = status.st_dev, .inode = status.st_ino, .bytes = file->bytes, .process = getpid(), .descriptor = file->descriptor};
  }
}

PeerMemory::PeerMemory(Member& member, runtime::SharedSegments* memory) : member_(member), memory_(memory) {}
PeerMemory::~PeerMemory() = default;

bool PeerMemory::attached() {
  if (!tried_) {
    tried_ = true;
    if (!attach()) {
      windows_.clear();
    }
  }
  return !windows_.empty();
}

bool PeerMemory::attach() {
  const RankState& mine = member_.state(member_.rank());
  if (member_.size() == 1 || memory_ == nullptr || mine.memory.bytes == 0) {
    return false;
  }
  windows_.resize(static_cast<std::size_t>(member_.size()));
  for (int peer = 0; peer < member_.size(); ++peer) {
    if (peer == member_.rank()) continue;
    const RankState& theirs = member_.state(peer);
    auto& window = windows_[static_cast<std::size_t>(peer)];
    window = FileWindow::of(theirs.memory, theirs.process_token == mine.process_token);
    if (!window) {
      return false;
    }
  }
  return true;
}

std::byte* PeerMemory::at(int rank, std::uint64_t place) const noexcept { return windows_[static_cast<std::size_t>(rank)]->base() + place; }

}  // namespace neuron::collectives
