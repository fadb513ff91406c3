/* Exhaustion: bounded, and undone by the end of the process. */
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 200
#define HOG_MIB 192
#define SHM_MIB 80
#define DISK_MIB 96
#define FILES 20000

static const char *many_processes(void)
{
    int gate[2];
    if (pipe(gate) < 0)
        return strerror(errno);
    const char *why = NULL;
    for (int i = 0; i < FORKS && !why; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            char c;
            close(gate[1]);
            _exit(read(gate[0], &c, 1) != 0); /* ends with the parent */
        }
        why = outcome(pid > 0);
    }
    close(gate[1]);
    while (wait(NULL) > 0)
        continue;
    return why;
}

static const char *much_memory(void)
{
    size_t n = (size_t)HOG_MIB << 20;
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return strerror(errno);
    for (size_t i = 0; i < n; i += 4096)
        p[i] = 1;
    return NULL;
}

static const char *fill(const char *folder, size_t mib)
{
    static char block[1 << 20];
    char path[128];
    memset(block, 1, sizeof block);
    snprintf(path, sizeof path, "%s/attack.%d", folder, (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    unlink(path);
    const char *why = outcome(fd >= 0);
    for (size_t i = 0; i < mib && !why; i++)
        why = outcome(write(fd, block, sizeof block) == sizeof block);
    return why;
}

static const char *fill_shm(void)
{
    return fill("/dev/shm", SHM_MIB);
}

static const char *fill_dev(void)
{
    return fill("/dev", 1);
}

/* Where it stands. */
static const char *fill_disk(void)
{
    return fill(".", DISK_MIB);
}

/* Small files take what counts files. */
static const char *many_files(void)
{
    char folder[64], name[96];
    snprintf(folder, sizeof folder, "attack.%d", (int)getpid());
    const char *why = outcome(mkdir(folder, 0700) == 0);
    int n = 0;
    for (; n < FILES && !why; n++) {
        snprintf(name, sizeof name, "%s/%d", folder, n);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
        why = outcome(fd >= 0);
        close(fd);
    }
    while (n-- > 0) {
        snprintf(name, sizeof name, "%s/%d", folder, n);
        unlink(name);
    }
    rmdir(folder);
    return why;
}

const struct attempt exhaust_attempts[] = {
    {.name = "many_processes", .run = many_processes, .exhausts = true},
    {.name = "much_memory", .run = much_memory, .exhausts = true},
    {.name = "fill_shm", .run = fill_shm, .exhausts = true},
    {.name = "fill_dev", .run = fill_dev, .exhausts = true},
    {.name = "fill_disk", .run = fill_disk, .exhausts = true},
    {.name = "many_files", .run = many_files, .exhausts = true},
    {.name = NULL},
};
