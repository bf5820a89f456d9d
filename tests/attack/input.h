/* Bytes instead of random numbers, and which edges of the libraries' C code they reach: what attack.c includes for a fuzzer. */
enum { EDGES = 1 << 16 };
uint8_t attack_edges[EDGES];

/* The compiler has every block of the libraries call this: a pair of blocks, one behind the other, is an edge. */
void __sanitizer_cov_trace_pc(void) {
    static __thread uintptr_t before;
    uintptr_t place = (uintptr_t)__builtin_return_address(0) * 0x9E3779B97F4A7C15u >> 40;
    attack_edges[(place ^ before) % EDGES] = 1;
    before = place >> 1;
}

static void end_all(void) {
    static int64_t (*const ENDS[KINDS])(uintptr_t) = {
#define END(kind, function) [KIND_##kind] = (int64_t (*)(uintptr_t))(void *)function
        END(aclOpExecutor, aclDestroyAclOpExecutor), END(aclTensorList, aclDestroyTensorList), END(aclScalarList, aclDestroyScalarList),
        END(aclTensor, aclDestroyTensor), END(aclScalar, aclDestroyScalar), END(aclIntArray, aclDestroyIntArray),
        END(aclFloatArray, aclDestroyFloatArray), END(aclBoolArray, aclDestroyBoolArray),
    };
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; ENDS[kind] && i < KEPT; i++)
            if (live[kind][i]) ENDS[kind](live[kind][i]);
    memset(live, 0, sizeof live);
    memset(stale, 0, sizeof stale);
    aclrtResetDeviceForce(0);
    aclFinalize();
    aclGetRecentErrMsg();
}

/* One program: what it did that none may, or NULL; how many calls it made. */
const char *attack_input(const uint8_t *data, size_t size, long *called) {
    Draw d = { .data = data, .end = data + size };
    told[0] = '\0';
    memset(attack_edges, 0, sizeof attack_edges);
    aclInit(NULL);
    aclrtSetDevice(0);
    while (d.end - d.data >= 2 && d.called < 100 && !told[0]) {
        if (draw(&d) % 12 == 0) sound(&d);
        step(&d);
    }
    *called = d.called;
    for (int i = 0; i < ALLOCATIONS; i++) release(&d, i);
    end_all();
    return told[0] ? told : NULL;
}
