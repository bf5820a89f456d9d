/* Memory that is short for Python's objects: the allocations of a chosen number fail, in the order in which they come. */
#include <stddef.h>

typedef struct {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
} Allocator;

extern void PyMem_GetAllocator(int domain, Allocator *allocator);
extern void PyMem_SetAllocator(int domain, Allocator *allocator);

enum { OBJECTS = 2 };
static Allocator before;
static int is_own; /* where the end of a block lacked memory, too, it stands for the next one */
static long left = -1;

static int fails(void) { return left >= 0 && left-- == 0; }

static void *try_malloc(void *context, size_t size)
{
    return fails() ? NULL : before.malloc(before.context, size);
}

static void *try_calloc(void *context, size_t count, size_t size)
{
    return fails() ? NULL : before.calloc(before.context, count, size);
}

static void *try_realloc(void *context, void *place, size_t size)
{
    return fails() ? NULL : before.realloc(before.context, place, size);
}

static void give_back(void *context, void *place) { before.free(before.context, place); }

/* One allocation fails, after so many that do not. */
void scarce_begin(long after)
{
    Allocator own = {NULL, try_malloc, try_calloc, try_realloc, give_back};
    if (!is_own) {
        PyMem_GetAllocator(OBJECTS, &before);
        PyMem_SetAllocator(OBJECTS, &own);
        is_own = 1;
    }
    left = after;
}

void scarce_end(void)
{
    left = -1;
    if (is_own)
        PyMem_SetAllocator(OBJECTS, &before);
    is_own = 0;
}
