#include "images/wall.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "images/import.h"
#include "images/store.h"

/* Newer than the headers of the systems we build on: truncation (3), ioctl on devices (5). */
#define FILES_2 ((LANDLOCK_ACCESS_FS_REFER << 1) - 1)
#define FILES_3 (FILES_2 | LANDLOCK_ACCESS_FS_REFER << 1)
#define FILES_5 (FILES_3 | LANDLOCK_ACCESS_FS_REFER << 2)
#define TCP_BIND_AND_CONNECT 3
#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define NEVER                                                                                      \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK |   \
     LANDLOCK_ACCESS_FS_MAKE_SOCK)

struct ruleset {
    uint64_t files;
    uint64_t network; /* since version 4 */
};

/* What is not there needs no permission: the import will say that it is missing. */
static err allow(int ruleset, const char *path, uint64_t access)
{
    struct stat st;
    AUTO_FD fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        access &= LANDLOCK_ACCESS_FS_READ_FILE;
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return fail_errno("allow the import to use %s", path);
    return 0;
}

static err allow_what_is_needed(int ruleset, uint64_t files, const char *images, const char *source)
{
    /* Locales, and what the C library loads late. */
    static const char *const system[] = {"/usr",         "/lib",      "/lib64", "/etc/ld.so.cache",
                                         "/dev/urandom", "/proc/self"};
    for (size_t i = 0; i < sizeof system / sizeof *system; i++)
        TRY(allow(ruleset, system[i], READ));
    TRY(allow(ruleset, images, files & ~(uint64_t)NEVER));
    return allow(ruleset, source, READ);
}

/* Version 1 could not allow links and renames between folders. */
static err restrict_files(const char *images, const char *source)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 2)
        return 0;
    struct ruleset r = {.files = version >= 5   ? FILES_5
                                 : version >= 3 ? FILES_3
                                                : FILES_2,
                        .network = version >= 4 ? TCP_BIND_AND_CONNECT : 0};
    size_t size = version >= 4 ? sizeof r : sizeof r.files;
    AUTO_FD ruleset = (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
    if (ruleset < 0)
        return fail_errno("make a Landlock ruleset");
    TRY(allow_what_is_needed(ruleset, r.files, images, source));
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return fail_errno("enforce a Landlock ruleset");
    return 0;
}

/* Owners, modes and what is not ours to read: all that root needs of root here. */
static err drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    const uint32_t keep =
        1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID;
    if (syscall(SYS_capget, &header, data) < 0)
        return fail_errno("read the capabilities");
    for (size_t i = 0; i < 2; i++) {
        data[i].permitted &= i == 0 ? keep : 0;
        data[i].effective &= data[i].permitted;
        data[i].inheritable = 0;
    }
    return syscall(SYS_capset, &header, data) < 0 ? fail_errno("drop capabilities") : 0;
}

err image_wall_enter(const char *images, const char *source)
{
    char path[PATH_MAX];
    TRY(image_source_path(source, path));
    TRY(image_store_make(images));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fail_errno("give up new privileges");
    TRY(restrict_files(images, path));
    return drop_capabilities();
}
