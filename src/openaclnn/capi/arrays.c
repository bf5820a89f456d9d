/* Memory for the arrays that a program gets from us and ends itself: `delete[]` in C++, `free` in C. Part of the
 * core library, compiled behind what cffi generates. */
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* Whether the program itself was linked with a library of C++. */
static int openaclnn_linked_as_cpp(void)
{
    void *program = dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map = NULL;
    const ElfW(Dyn) *entry;
    const char *names = NULL;
    int found = 0;

    if (program == NULL || dlinfo(program, RTLD_DI_LINKMAP, &map) != 0) {
        return 1;
    }
    for (entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) {
            /* Some loaders leave what lies there as it is in the file: an offset. */
            names = (const char *)(entry->d_un.d_ptr < map->l_addr ? map->l_addr + entry->d_un.d_ptr
                                                                   : entry->d_un.d_ptr);
        }
    }
    for (entry = map->l_ld; names != NULL && entry->d_tag != DT_NULL; entry++) {
        const char *name = entry->d_tag == DT_NEEDED ? names + entry->d_un.d_val : "";
        found = found || strncmp(name, "libstdc++", 9) == 0 || strncmp(name, "libc++", 6) == 0;
    }
    dlclose(program);
    return found;
}

/* std::terminate tells a C++ program; but sanitizers bring it to C programs too, with a new[] of their own that
 * tells apart who ends it. */
static void *openaclnn_new(size_t size)
{
    void *(*allocate)(size_t) = NULL;
    int cpp = dlsym(RTLD_DEFAULT, "_ZSt9terminatev") != NULL;

    if (cpp && dlsym(RTLD_DEFAULT, "__sanitizer_set_report_path") != NULL) {
        cpp = openaclnn_linked_as_cpp();
    }
    if (cpp) {
        *(void **)&allocate = dlsym(RTLD_DEFAULT, "_Znam");
    }
    return allocate != NULL ? allocate(size) : malloc(size);
}
