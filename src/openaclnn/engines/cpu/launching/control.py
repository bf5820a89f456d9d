"""Where the pool's words lie: its control block, the workers' and the bound kernels'. One int64 a slot."""

from __future__ import annotations

MAX_ARGUMENTS = 64  # of a kernel, besides its status word
MAX_WORKERS = 255

# The C library's functions come in by address.
BUSY, ACTIVE, AVOID, CPUS = range(4)
SEM_WAIT, SEM_POST, GETCPU, SET_AFFINITY = range(4, 8)
STARTED = 8
KERNEL, ARGUMENTS, COUNT, STEP, PARTS = range(16, 21)  # the task
# OpenMP's GOMP_parallel, if large kernels run on its team; what it runs; omp_get_max_threads, or 0 where the number
# of threads is chosen.
TEAM, TEAM_BODY, TEAM_SIZE = 21, 22, 23
MASK, MASK_SLOTS = 24, 16  # the CPUs we may use
# omp_get_thread_num, omp_get_num_threads; how many share the task; whether each does its share at once
TEAM_RANK, TEAM_MEMBERS, THREADS, SHORT = 40, 41, 42, 43
EACH = 8  # parts for each thread at least, and less than twice as many: one lost up to a fifth, four up to a tenth
# How many of each thread's parts are taken: no two in lines that caches fetch together. With a flag for each part, side by side, 16 threads take 7.6 us for a launch of
# nothing, 7.1 so.
TAKEN, TAKEN_SLOTS = 48, 16
WORKERS, WORKER_SLOTS = TAKEN + TAKEN_SLOTS * (MAX_WORKERS + 1), 24  # one block for each worker:
# Its pthread, where the control block lies, its number (the caller's is 0), two semaphores.
HANDLE, CONTROL, RANK, GO, DONE = 0, 1, 2, 8, 16

# A kernel's argument block:
STATUS, FIRST_ARGUMENT = 0, 1
