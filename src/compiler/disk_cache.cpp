// Entries, their header, and the removal of old ones.
#include "compiler/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "compiler/fingerprint.h"

namespace neuron::compiler {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "softneuron-program 1\n";
constexpr std::string_view kEntrySuffix = ".program";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr auto kAbandoned = std::chrono::hours(1);  // a temporary file of that age has no writer any more

class File {
 public:
  File(const fs::path& path, int flags, mode_t mode = 0600) : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~File() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  explicit operator bool() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  // Writes are only known to have succeeded once the file is closed (quotas, network file systems).
  bool close() { return ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

std::string digest_of(std::string_view text) {
  Digest digest;
  digest.update(text);
  return digest.hex();
}

std::string header_of(const std::string& build, const std::string& key, std::string_view text) {
  return std::string(kMagic) + "build " + build + "\nkey " + key + "\nbytes " + std::to_string(text.size()) + "\ndigest " +
         digest_of(text) + "\n\n";
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return true;
}

std::optional<std::string> read_all(int descriptor) {
  std::string bytes;
  std::array<char, 1 << 16> chunk{};
  while (true) {
    const ssize_t count = ::read(descriptor, chunk.data(), chunk.size());
    if (count == 0) {
      return bytes;
    }
    if (count < 0 && errno != EINTR) {
      return std::nullopt;
    }
    bytes.append(chunk.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
}

// The line behind `name`, which `rest` loses; nothing if the line is another.
std::optional<std::string_view> take_line(std::string_view& rest, std::string_view name) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos || !rest.starts_with(name)) {
    return std::nullopt;
  }
  const std::string_view line = rest.substr(name.size(), end - name.size());
  rest.remove_prefix(end + 1);
  return line;
}

// Why the file is not the entry of `key`, or an empty string; `text` is what it holds then. Another build's entry is `other_build`.
std::string check(std::string_view bytes, const std::string& build, const std::string& key, std::string& text, bool& other_build) {
  if (!bytes.starts_with(kMagic)) {
    return "it is no compiled program";
  }
  bytes.remove_prefix(kMagic.size());
  const auto found_build = take_line(bytes, "build ");
  const auto found_key = take_line(bytes, "key ");
  const auto size = take_line(bytes, "bytes ");
  const auto digest = take_line(bytes, "digest ");
  if (!found_build || !found_key || !size || !digest || !take_line(bytes, "")) {
    return "its header is damaged";
  }
  other_build = *found_build != build;
  if (other_build) {
    return "it was compiled by another build";
  }
  if (*found_key != key) {
    return "it is the entry of another program";
  }
  if (*size != std::to_string(bytes.size())) {
    return "it has " + std::to_string(bytes.size()) + " bytes of text instead of " + std::string(*size);
  }
  if (*digest != digest_of(bytes)) {
    return "its digest does not fit its text";
  }
  text = bytes;
  return {};
}

}  // namespace

DiskCache::DiskCache(DiskCacheOptions options, Report report) : options_(std::move(options)), report_(std::move(report)) {}

fs::path DiskCache::file_of(const std::string& key) const { return options_.folder / (key + std::string(kEntrySuffix)); }

void DiskCache::report_once(const std::string& subject, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (!reported_.insert(subject).second) {
      return;
    }
  }
  report_(message);
}

bool DiskCache::usable() {
  const std::lock_guard lock(mutex_);
  if (!usable_) {
    struct stat info{};
    usable_ = !options_.only_own || ::lstat(options_.folder.c_str(), &info) != 0 || (S_ISDIR(info.st_mode) && info.st_uid == ::geteuid());
  }
  return *usable_;
}

std::optional<std::string> DiskCache::load(const std::string& key) {
  const fs::path path = file_of(key);
  if (!usable()) {
    ++misses_;
    return std::nullopt;
  }
  const File file(path, O_RDONLY | O_NONBLOCK);  // a pipe of that name must not block
  if (!file) {
    if (errno != ENOENT && errno != ENOTDIR) {
      report_once(path, "the compiled program " + path.string() + " cannot be read (" + std::strerror(errno) + "); it is compiled again");
    }
    ++misses_;
    return std::nullopt;
  }
  const auto bytes = read_all(file.get());
  std::string text;
  bool other_build = false;
  const std::string problem = bytes ? check(*bytes, options_.build, key, text, other_build) : std::string(std::strerror(errno));
  if (!problem.empty()) {
    if (!other_build) {
      report_once(path, "the compiled program " + path.string() + " cannot be used: " + problem + "; it is compiled again and replaced");
    }
    ++misses_;
    return std::nullopt;
  }
  ::futimens(file.get(), nullptr);  // used just now; on a read-only disk nothing is ever removed either
  ++hits_;
  return text;
}

void DiskCache::reject(const std::string& key, const std::string& why) {
  const fs::path path = file_of(key);
  report_once(path, "the compiled program " + path.string() + " cannot be used: " + why + "; it is compiled again and replaced");
  --hits_;
  ++misses_;
  ::unlink(path.c_str());
}

bool DiskCache::write(const fs::path& temporary, std::string_view header, std::string_view text, std::string& problem) {
  File file(temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (file && write_all(file.get(), header) && write_all(file.get(), text) && file.close()) {
    return true;
  }
  problem = std::strerror(errno);
  return false;
}

bool DiskCache::store(const std::string& key, std::string_view text) {
  if (!usable()) {
    return false;
  }
  const fs::path path = file_of(key);
  // Also unique among machines that share the folder: a file that exists is an error, and a next name is tried.
  std::string problem;
  std::error_code made;
  fs::create_directories(options_.folder, made);
  if (!made && options_.only_own) {
    ::chmod(options_.folder.c_str(), 0700);
  }
  const std::string header = header_of(options_.build, key, text);
  const fs::path temporary =
      options_.folder / (key + "." + std::to_string(::getpid()) + "." + std::to_string(++names_) + "." +
                         std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()) + std::string(kTemporarySuffix));
  bool stored = made ? false : write(temporary, header, text, problem);
  if (made) {
    problem = made.message();
  }
  if (stored && ::rename(temporary.c_str(), path.c_str()) != 0) {
    problem = std::strerror(errno);
    stored = false;
  }
  if (!stored) {
    ::unlink(temporary.c_str());
    report_once("store", "compiled programs cannot be kept in " + options_.folder.string() + " (" + problem +
                             "); every process compiles them anew. TORCH_NEURONX_NEFF_CACHE_DIR names another folder.");
    return false;
  }
  const std::lock_guard lock(mutex_);
  if (bytes_ != UINT64_MAX) {
    bytes_ += header.size() + text.size();
  }
  if (bytes_ > options_.limit_bytes) {
    evict();
  }
  return true;
}

void DiskCache::evict() {
  struct Entry {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  const fs::path lock_folder = options_.lock_folder.empty() ? options_.folder : options_.lock_folder;
  std::error_code ignored;
  fs::create_directories(lock_folder, ignored);
  const File lock(lock_folder / ("softneuron-" + digest_of(fs::absolute(options_.folder, ignored).string()) + ".lock"), O_RDWR | O_CREAT);
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return;  // another process is at it
  }
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(options_.folder, ignored), end; !ignored && it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    std::error_code gone;
    const auto used = it->last_write_time(gone);
    if (gone) {
      continue;
    }
    if (name.ends_with(kTemporarySuffix) && now - used > kAbandoned) {
      fs::remove(it->path(), gone);
    } else if (name.ends_with(kEntrySuffix)) {
      const std::uint64_t bytes = it->file_size(gone);
      if (!gone) {
        entries.push_back({used, bytes, it->path()});
        total += bytes;
      }
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  // Down to nine tenths, so that the next entries do not each cause a walk through the folder.
  const std::uint64_t target = total > options_.limit_bytes ? options_.limit_bytes / 10 * 9 : options_.limit_bytes;
  for (const Entry& entry : entries) {
    if (total <= target) {
      break;
    }
    std::error_code failed;
    fs::remove(entry.path, failed);
    total -= failed ? 0 : entry.bytes;
  }
  bytes_ = total;
}

}  // namespace neuron::compiler
