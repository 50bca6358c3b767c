#include "threads.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

namespace offramp {
namespace {

// A step meets some ten barriers a layer, a few microseconds apart: spin first, then let a busy neighbour have the core.
constexpr int kBarrierSpins = 2000;
// Between two steps Python takes a fraction of a millisecond: workers stay awake for about that long, then sleep.
constexpr int kIdleSpins = 20000;

std::atomic<ThreadPool*> pool{nullptr};
std::mutex pool_mutex;

// The child of a fork has none of the workers: it abandons the pool's memory and starts anew.
void forget_pool() {
  pool.store(nullptr);
  new (&pool_mutex) std::mutex;
}

}  // namespace

struct ThreadPool::Worker {
  std::atomic<uint32_t> ticket{0};  // bumped by the caller for each region
  std::atomic<bool> stop{false};
  std::thread thread;
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

void ThreadPool::ensure_workers(int count) {
  while (static_cast<int>(workers_.size()) < count) {
    workers_.push_back(std::make_unique<Worker>());
    Worker& worker = *workers_.back();
    worker.thread = std::thread([this, &worker, thread = static_cast<int>(workers_.size())] { work(worker, thread); });
  }
}

void ThreadPool::run(int threads, const Body& body) {
  std::lock_guard<std::mutex> guard(region_);
  ensure_workers(threads - 1);
  body_ = &body;
  threads_ = threads;
  arrived_.store(0);
  for (int i = 0; i < threads - 1; ++i) {
    workers_[i]->ticket.fetch_add(1, std::memory_order_release);
    workers_[i]->ticket.notify_one();
  }
  body(0);
  barrier();  // nobody still runs body when it goes out of scope
}

void ThreadPool::barrier() {
  if (threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
    return;
  }
  for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
    if (spins < kBarrierSpins) {
      _mm_pause();
    } else {
      sched_yield();
    }
  }
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
    if (self.stop.load()) return;
    ++seen;
    (*body_)(thread);
    barrier();
  }
}

ThreadPool::~ThreadPool() {
  for (auto& worker : workers_) {
    worker->stop.store(true);
    worker->ticket.fetch_add(1);
    worker->ticket.notify_one();
    worker->thread.join();
  }
}

}  // namespace offramp
