// Shared-memory files.
#include "collectives/shm/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "collectives/error.h"
#include "collectives/shm/process_identity.h"

namespace neuron::collectives {
namespace {

constexpr std::string_view kPrefix = "softneuron-group-";
constexpr const char* kFolder = "/dev/shm";

// The first byte is the creator's while the file has a name; byte 1 + r is rank r's.
constexpr off_t kCreatorByte = 0;
off_t byte_of(int rank) noexcept { return 1 + static_cast<off_t>(rank); }

// The segments of this process by name. Leaked: segments may be closed by other static objects' destructors.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Segment>> segments;
};
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

[[noreturn]] void throw_system(const std::string& what, int error) { throw Error(ErrorCode::kSystem, what + ": " + std::strerror(error)); }

bool lock_byte(int descriptor, off_t byte) noexcept {
  struct flock request{};
  request.l_type = F_WRLCK;
  request.l_whence = SEEK_SET;
  request.l_start = byte;
  request.l_len = 1;
  return fcntl(descriptor, F_SETLK, &request) == 0;
}

std::string slashed(const std::string& name) { return "/" + name; }

std::string new_name() {
  char text[64];
  std::snprintf(text, sizeof(text), "%s%016llx", kPrefix.data(), static_cast<unsigned long long>(random_bits()));
  return text;
}

// Memory for a part of the file; 0 or the error. Writing to a page without would end in SIGBUS when /dev/shm is full.
int allocate(int descriptor, std::size_t offset, std::size_t bytes) noexcept {
  int error = 0;
  do {
    error = posix_fallocate(descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

// What a full /dev/shm should tell its owner.
std::string no_room(std::size_t bytes) {
  return "no room for " + std::to_string(bytes >> 10) + " KiB of shared memory for collectives in /dev/shm (containers: raise --shm-size)";
}

}  // namespace

Segment::Segment(std::string name, int descriptor, std::size_t size)
    : name_(std::move(name)), descriptor_(descriptor), size_(size), data_(nullptr), fork_generation_(fork_generation()) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(descriptor);
    throw_system("cannot map " + std::to_string(size) + " bytes of shared memory", error);
  }
  data_ = static_cast<std::byte*>(memory);
}

Segment::~Segment() {
  if (fork_generation_ != fork_generation()) {
    // A forked child's copy: there are no locks to drop, the name is the parent's, and the registry's mutex may have been held when the
    // child began.
    munmap(data_, size_);
    close(descriptor_);
    return;
  }
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  if (linked_) {
    shm_unlink(slashed(name_).c_str());
  }
  munmap(data_, size_);
  // Drops this process's locks: no other Segment of this file is open here.
  close(descriptor_);
  const auto found = all.segments.find(name_);
  if (found != all.segments.end() && found->second.expired()) {
    all.segments.erase(found);
  }
}

std::shared_ptr<Segment> Segment::create(std::size_t bytes, std::size_t committed) {
  sweep();
  Registry& all = registry();
  // A sweeper of another process may look at the file before its lock is taken. It then holds the lock or has removed the name: begin
  // again.
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::lock_guard guard(all.mutex);
    const std::string name = new_name();
    const int descriptor = shm_open(slashed(name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (descriptor < 0) {
      if (errno == EEXIST) continue;
      throw_system("cannot create a shared-memory file in /dev/shm", errno);
    }
    struct stat status{};
    if (!lock_byte(descriptor, kCreatorByte) || fstat(descriptor, &status) != 0 || status.st_nlink == 0) {
      shm_unlink(slashed(name).c_str());
      close(descriptor);
      continue;
    }
    int error = ftruncate(descriptor, static_cast<off_t>(bytes)) != 0 ? errno : 0;
    if (error == 0) {
      error = allocate(descriptor, 0, committed);
    }
    if (error != 0) {
      shm_unlink(slashed(name).c_str());
      close(descriptor);
      throw_system(no_room(committed), error);
    }
    std::shared_ptr<Segment> segment;
    try {
      segment.reset(new Segment(name, descriptor, bytes));
    } catch (...) {
      shm_unlink(slashed(name).c_str());
      throw;
    }
    segment->linked_ = true;
    all.segments[name] = segment;
    return segment;
  }
  throw Error(ErrorCode::kSystem, "cannot create a shared-memory file in /dev/shm: another process removes each one");
}

std::shared_ptr<Segment> Segment::open(const std::string& name, std::size_t bytes) {
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  if (const auto found = all.segments.find(name); found != all.segments.end()) {
    if (auto segment = found->second.lock()) {
      return segment;
    }
  }
  const int descriptor = shm_open(slashed(name).c_str(), O_RDWR | O_CLOEXEC, 0);
  if (descriptor < 0) {
    throw_system("cannot open /dev/shm/" + name + " (are all ranks of the group on one host, with one /dev/shm and one user?)", errno);
  }
  struct stat status{};
  if (fstat(descriptor, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
    close(descriptor);
    throw Error(ErrorCode::kSystem, "/dev/shm/" + name + " has not the size of this version's groups");
  }
  std::shared_ptr<Segment> segment(new Segment(name, descriptor, bytes));
  all.segments[name] = segment;
  return segment;
}

void Segment::commit(std::size_t offset, std::size_t bytes) {
  if (const int error = allocate(descriptor_, offset, bytes); error != 0) {
    throw_system(no_room(bytes), error);
  }
}

void Segment::unlink() noexcept {
  if (linked_) {
    shm_unlink(slashed(name_).c_str());
    linked_ = false;
  }
}

void Segment::hold(int rank) {
  if (!lock_byte(descriptor_, byte_of(rank))) {
    throw_system("cannot mark rank " + std::to_string(rank) + " as alive (another process is that rank?)", errno);
  }
}

bool Segment::held_elsewhere(int rank) const noexcept {
  struct flock request{};
  request.l_type = F_WRLCK;
  request.l_whence = SEEK_SET;
  request.l_start = byte_of(rank);
  request.l_len = 1;
  // When the kernel does not answer, nobody is declared dead.
  return fcntl(descriptor_, F_GETLK, &request) != 0 || request.l_type != F_UNLCK;
}

int Segment::sweep() {
  DIR* const folder = opendir(kFolder);
  if (folder == nullptr) {
    return 0;
  }
  Registry& all = registry();
  // Held throughout: opening and closing a file that this process has in use would drop its locks.
  const std::lock_guard guard(all.mutex);
  int removed = 0;
  while (const dirent* const entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (!name.starts_with(kPrefix) || all.segments.contains(name)) {
      continue;
    }
    const int descriptor = shm_open(slashed(name).c_str(), O_RDWR | O_CLOEXEC, 0);
    if (descriptor < 0) {
      continue;  // gone meanwhile, or another user's
    }
    // Whoever gets the creator's lock knows that the creator is gone, or has not got it yet and will begin again.
    if (lock_byte(descriptor, kCreatorByte)) {
      removed += shm_unlink(slashed(name).c_str()) == 0 ? 1 : 0;
    }
    close(descriptor);
  }
  closedir(folder);
  return removed;
}

}  // namespace neuron::collectives
