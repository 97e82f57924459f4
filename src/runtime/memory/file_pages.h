// Gives back the resident pages of a mapped file once their bytes have been copied.
#pragma once

#include <cstddef>

namespace neuron::runtime {

// Unmaps those pages that lie wholly in [begin, begin + bytes) and still are the file's own: they are read again from the page cache when
// they are touched. Pages that the process has written to (private copies), and memory that is not a file's, stay. Without this, loading a
// checkpoint holds every weight twice, in the mapped file and on the device. Does nothing where the kernel does not tell (no
// /proc/self/pagemap).
void release_file_pages(const void* begin, std::size_t bytes) noexcept;

}  // namespace neuron::runtime
