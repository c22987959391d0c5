#pragma once
// Counts what the program takes from the heap, on all threads. It defines malloc and its kin for the whole program, so
// it is included by one file of it. The definitions stand in front of those of the C library, which they call; operator
// new ends here too. Under a sanitizer, whose own malloc must stay in place, that allocator's hook counts instead.

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// From the sanitizers' allocator_interface.h, a header that not every compiler brings along.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*, std::size_t),
                                                         void (*free_hook)(const volatile void*));
#endif

namespace xtape {

inline std::atomic<std::size_t> heap_allocations{0};

/// Installs the hook of a sanitizer's allocator, once; without a sanitizer there is none.
inline void start_counting() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static const int installed = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, std::size_t) { ++heap_allocations; }, [](const volatile void*) {});
  static_cast<void>(installed);
#endif
}

/// The number of heap allocations while f runs.
template <class F>
std::size_t allocations_of(F&& f) {
  start_counting();
  const std::size_t before = heap_allocations;
  f();
  return heap_allocations - before;
}

}  // namespace xtape

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  ++xtape::heap_allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++xtape::heap_allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* p, std::size_t size) {
  ++xtape::heap_allocations;
  return __libc_realloc(p, size);
}
void* aligned_alloc(std::size_t align, std::size_t size) {
  ++xtape::heap_allocations;
  return __libc_memalign(align, size);
}
void* memalign(std::size_t align, std::size_t size) { return aligned_alloc(align, size); }
int posix_memalign(void** p, std::size_t align, std::size_t size) {
  *p = aligned_alloc(align, size);
  return *p == nullptr ? ENOMEM : 0;
}
}
#endif
