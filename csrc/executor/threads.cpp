#include "threads.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <new>

namespace offramp {
namespace {

// A step meets five barriers a layer, some ten microseconds apart: spin first, then sleep and leave the core to whoever
// needs it. With more threads than cores the one that is waited for needs this very core: sleep at once.
constexpr int kBarrierSpins = 2000;
constexpr int kCrowdedSpins = 20;
// Between two steps Python takes a fraction of a millisecond: workers stay awake for about that long, then sleep.
constexpr int kIdleSpins = 20000;

std::atomic<ThreadPool*> pool{nullptr};
std::mutex pool_mutex;

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1024;  // more CPUs than the set holds
  return CPU_COUNT(&allowed);
}

// The child of a fork has none of the workers: it abandons the pool's memory and starts anew.
void forget_pool() {
  pool.store(nullptr);
  new (&pool_mutex) std::mutex;
}

}  // namespace

struct ThreadPool::Worker {
  std::atomic<uint32_t> ticket{0};  // bumped by the caller for each region
};

ThreadPool& ThreadPool::instance() {
  ThreadPool* current = pool.load(std::memory_order_acquire);
  if (current) return *current;
  std::lock_guard<std::mutex> guard(pool_mutex);
  current = pool.load();
  if (!current) {
    static std::once_flag registered;
    std::call_once(registered, [] { pthread_atfork(nullptr, nullptr, forget_pool); });
    current = new ThreadPool;  // lives until the process ends: workers may still be asleep at exit
    pool.store(current, std::memory_order_release);
  }
  return *current;
}

// Workers are never stopped: they sleep between regions and end with the process.
void ThreadPool::ensure_workers(int count) {
  while (static_cast<int>(workers_.size()) < count) {
    auto worker = std::make_unique<Worker>();
    const int thread = static_cast<int>(workers_.size()) + 1;
    workers_.reserve(workers_.size() + 1);
    std::thread([this, &self = *worker, thread] { work(self, thread); }).detach();
    workers_.push_back(std::move(worker));  // only once the thread has started
  }
}

void ThreadPool::run(int threads, const Body& body) {
  std::lock_guard<std::mutex> guard(region_);
  ensure_workers(threads - 1);
  body_ = &body;
  threads_ = threads;
  spins_ = threads <= usable_cores() ? kBarrierSpins : kCrowdedSpins;
  arrived_.store(0);
  for (int i = 0; i < threads - 1; ++i) {
    workers_[i]->ticket.fetch_add(1, std::memory_order_release);
    workers_[i]->ticket.notify_one();
  }
  body(0);
  barrier();  // nobody still runs body when it goes out of scope
}

void ThreadPool::barrier() {
  const int threads = threads_;  // read before arriving: from then on the next region may begin
  const int spins = spins_;
  if (threads == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  for (int i = 0; i < spins; ++i) {
    if (phase_.load(std::memory_order_acquire) != phase) return;
    _mm_pause();
  }
  phase_.wait(phase, std::memory_order_acquire);
}

void ThreadPool::work(Worker& self, int thread) {
  uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (self.ticket.load(std::memory_order_acquire) == seen && spins < kIdleSpins) {
      _mm_pause();
      ++spins;
    }
    self.ticket.wait(seen, std::memory_order_acquire);
    ++seen;
    (*body_)(thread);
    barrier();
  }
}

}  // namespace offramp
