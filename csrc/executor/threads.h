// One pool of worker threads per process, and a barrier for the threads of one parallel region.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace offramp {

class ThreadPool {
 public:
  using Body = std::function<void(int thread)>;

  // The pool of this process. After a fork the child gets a fresh one.
  static ThreadPool& instance();

  // Runs body(0..threads-1), body(0) on the caller; one region at a time in the process. The body must not throw: the
  // other threads would wait for it, so callers allocate beforehand.
  void run(int threads, const Body& body);

  // Waits until all threads of the current region have arrived. Only inside run().
  void barrier();

 private:
  struct Worker;

  void ensure_workers(int count);
  void work(Worker& self, int thread);

  std::mutex region_;
  std::vector<std::unique_ptr<Worker>> workers_;
  const Body* body_ = nullptr;
  int threads_ = 1;
  int spins_ = 0;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> phase_{0};
};

}  // namespace offramp
