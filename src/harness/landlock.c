/* A second wall around files, and the first where namespaces are forbidden (a plain container):
   Landlock, as much as the kernel has of it. */
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "harness/confine.h"

/* Newer than the headers of the systems we build on. */
struct ruleset {
    uint64_t files;   /* since 1 */
    uint64_t network; /* since 4 */
    uint64_t scoped;  /* since 6 */
};

struct __attribute__((packed)) beneath {
    uint64_t allowed;
    int32_t folder;
};

enum {
    EXECUTE = 1 << 0,
    READ_FILE = 1 << 2,
    READ_FOLDER = 1 << 3,
    FILES_1 = (1 << 13) - 1, /* all that version 1 knows */
    FILES_2 = FILES_1 | 1 << 13,
    FILES_3 = FILES_2 | 1 << 14,
    FILES_5 = FILES_3 | 1 << 15,
    TCP_BIND_AND_CONNECT = 3,
    ABSTRACT_SOCKETS_AND_SIGNALS = 3,
    VERSION_QUERY = 1,
    RULE_BENEATH = 1,
};

struct allowed {
    const char *path;
    uint64_t access; /* READ_FOLDER and what is beneath only for folders */
};

static int make_ruleset(int version)
{
    struct ruleset r = {.files = version >= 5   ? FILES_5
                                 : version >= 3 ? FILES_3
                                 : version >= 2 ? FILES_2
                                                : FILES_1,
                        .network = version >= 4 ? TCP_BIND_AND_CONNECT : 0,
                        .scoped = version >= 6 ? ABSTRACT_SOCKETS_AND_SIGNALS : 0};
    size_t size = version >= 6 ? sizeof r : version >= 4 ? 16 : 8;
    return (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
}

/* What is not there needs no permission. */
static err allow(int ruleset, const struct allowed *a)
{
    struct stat st;
    AUTO_FD fd = open(a->path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return 0;
    uint64_t access = S_ISDIR(st.st_mode) ? a->access : a->access & ~(uint64_t)READ_FOLDER;
    struct beneath rule = {.allowed = access, .folder = fd};
    if (syscall(SYS_landlock_add_rule, ruleset, RULE_BENEATH, &rule, 0) < 0)
        return fail_errno("allowing the host to read %s", a->path);
    return 0;
}

err confine_files(const struct confine_tree *tree, int *out_version)
{
    char pi[PATH_MAX], undici[PATH_MAX];
    int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION_QUERY);
    if (version <= 0) {
        *out_version = 0;
        return 0;
    }
    snprintf(pi, sizeof pi, "%s/pi", tree->runtime_dir);
    snprintf(undici, sizeof undici, "%s/undici", tree->runtime_dir);
    const uint64_t data = READ_FILE | READ_FOLDER, code = data | EXECUTE;
    const struct allowed list[] = {
        {tree->node, code},
        {pi, data},
        {undici, data},
        {tree->harness_dir, data},
        {"/usr/lib", code},
        {"/usr/lib64", code},
        {"/lib", code},
        {"/lib64", code},
        {"/etc/ld.so.cache", data},
        {"/dev/null", data},
        {"/dev/urandom", data},
        {"/proc/self", data},
    };
    AUTO_FD ruleset = make_ruleset(version);
    if (ruleset < 0)
        return fail_errno("making a Landlock ruleset");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        TRY(allow(ruleset, &list[i]));
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return fail_errno("enforcing a Landlock ruleset");
    *out_version = version;
    return 0;
}
