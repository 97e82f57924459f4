// The shared-memory file of one group: creation, mapping, removal of its name, and which ranks' processes are alive.
//
// Liveness is told by POSIX record locks: every rank's process holds the lock on one byte of the file. The kernel drops the lock when the
// process ends, however it ends; a forked child does not inherit it; and asking for it involves no process id, so neither reuse of ids nor
// pid namespaces can deceive (pidfds and kill(pid, 0) fail across namespaces; open-file-description locks and pipes live on in forked
// children; robust futexes follow threads). Their known trap, that closing any descriptor of the file drops the locks of the whole process,
// is avoided by one Segment per file and process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace neuron::collectives {

class Segment {
 public:
  // A new file in /dev/shm of `bytes`, of which the first `committed` are backed by memory (so that using them cannot fail later). Throws
  // Error(kSystem) when there is no room. First removes the files of dead creators.
  static std::shared_ptr<Segment> create(std::size_t bytes, std::size_t committed);
  // Maps the file of this name; ranks in one process share the mapping.
  static std::shared_ptr<Segment> open(const std::string& name, std::size_t bytes);

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // Without the leading "/dev/shm/".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Backs [offset, offset + bytes) with memory. Throws Error(kSystem).
  void commit(std::size_t offset, std::size_t bytes);
  // Takes the name out of /dev/shm; the memory lives until the last rank has unmapped it.
  void unlink() noexcept;

  // Marks this process as that of `rank` until it ends (or closes the segment).
  void hold(int rank);
  // Whether a process other than this one holds `rank`'s lock.
  [[nodiscard]] bool held_elsewhere(int rank) const noexcept;

  // Removes the files whose creator is gone: a run that was killed before all its ranks had mapped the segment. Returns how many.
  static int sweep();

 private:
  Segment(std::string name, int descriptor, std::size_t size);

  std::string name_;
  int descriptor_;
  std::size_t size_;
  std::byte* data_;
  bool linked_ = false;
  std::uint64_t fork_generation_;
};

}  // namespace neuron::collectives
