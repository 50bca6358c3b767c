// Reads `threads` equal parts of a buffer at once, over and over, and prints the bytes per second of each pass.
// Usage: bandwidth THREADS MEGABYTES PASSES. The buffer must be far larger than the last cache.
// Bound: bytes. Eight independent sums keep enough loads in flight; the compiler vectorizes them.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { const uint64_t* data; size_t words; int passes; uint64_t sum; pthread_barrier_t* barrier; } Part;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void* read_part(void* argument) {
    Part* part = argument;
    for (int pass = 0; pass < part->passes; ++pass) {
        pthread_barrier_wait(part->barrier);  // all start together
        uint64_t sums[32] = {0};
        for (size_t i = 0; i + 32 <= part->words; i += 32)
            for (int lane = 0; lane < 32; ++lane) sums[lane] += part->data[i + lane];
        for (int lane = 0; lane < 32; ++lane) part->sum += sums[lane];
        pthread_barrier_wait(part->barrier);  // and end together
    }
    return NULL;
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const int threads = atoi(argv[1]), passes = atoi(argv[3]);
    const size_t words = (size_t)atoi(argv[2]) * 1000000 / 8 / (size_t)threads;
    if (threads < 1 || threads > 256 || passes < 1 || words < 32) return 2;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    pthread_t ids[256];
    Part parts[256];
    for (int t = 0; t < threads; ++t) {
        uint64_t* data = aligned_alloc(4096, (words * 8 + 4095) / 4096 * 4096);
        if (!data) return 1;
        memset(data, t + 1, words * 8);  // real pages, not the shared zero page
        parts[t] = (Part){data, words, passes, 0, &barrier};
        if (pthread_create(&ids[t], NULL, read_part, &parts[t])) return 1;
    }
    for (int pass = 0; pass < passes; ++pass) {
        const double start = now();
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        printf("%.0f\n", (double)(words * 8 * (size_t)threads) / (now() - start));
    }
    uint64_t sum = 0;
    for (int t = 0; t < threads; ++t) {
        pthread_join(ids[t], NULL);
        sum += parts[t].sum;
    }
    fprintf(stderr, "%llu\n", (unsigned long long)sum);  // keeps the loads
    return 0;
}
