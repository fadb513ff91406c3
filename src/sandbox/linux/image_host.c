#include "sandbox/linux/image_host.h"

#include "base/buf.h"
#include "base/fd.h"
#include "sandbox/hands_blob.h"
#include "sandbox/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define SKELETON_VERSION 1 /* raise when the tables below change */

const char *const image_host_merged[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32", NULL};

static const struct {
    const char *path;
    mode_t mode;
} folders[] = {
    {".pi", 0755},
    {"dev", 0755},
    {"etc", 0755},
    {"etc/alternatives", 0755},
    {"etc/ssl", 0755},
    {"etc/ssl/certs", 0755},
    {"home", 0755},
    {"mnt", 0755},
    {"mnt/session", 0755},
    {"mnt/session/outputs", 0755},
    {"mnt/session/tool-output", 0755},
    {"opt", 0755},
    {"proc", 0755},
    {"root", 0700},
    {"run", 0755},
    {"run/lock", 01777},
    {"srv", 0755},
    {"sys", 0755},
    {"tmp", 01777},
    {"usr", 0755},
    {"var", 0755},
    {"var/cache", 0755},
    {"var/lib", 0755},
    {"var/log", 0755},
    {"var/tmp", 01777},
    {"workspace", 0755},
};

static const struct {
    const char *path, *content;
} files[] = {
    {"etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
                   "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"etc/group", "root:x:0:\ndaemon:x:1:\ntty:x:5:\nnogroup:x:65534:\n"},
    {"etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"},
    {"etc/hostname", "sandbox\n"},
    {"etc/resolv.conf", "# This sandbox has no network.\n"},
    {"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"
                          "services: files\nprotocols: files\n"},
    {"etc/shells", "/bin/sh\n/bin/bash\n"},
};

static const struct {
    const char *path, *target;
} links[] = {
    {"etc/mtab", "../proc/self/mounts"},
    {"etc/os-release", "../usr/lib/os-release"},
    {"var/run", "../run"},
    {"var/lock", "../run/lock"},
};

/* Copied from the host where they exist: no secrets, and programs in /usr rely on them. */
static const char *const copies[] = {"etc/ld.so.cache", "etc/services", "etc/protocols",
                                     "etc/ssl/openssl.cnf"};

/* The first that exists becomes etc/ssl/certs/ca-certificates.crt. */
static const char *const ca_bundles[] = {"/etc/ssl/certs/ca-certificates.crt",
                                         "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/ssl/ca-bundle.pem"};
#define CA_BUNDLE "etc/ssl/certs/ca-certificates.crt"

static const char *host_ca_bundle(void)
{
    for (size_t i = 0; i < sizeof ca_bundles / sizeof *ca_bundles; i++) {
        if (access(ca_bundles[i], R_OK) == 0)
            return ca_bundles[i];
    }
    return NULL;
}

static err give(int dir, const char *path, uid_t owner)
{
    if (owner != geteuid() && fchownat(dir, path, owner, owner, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno("give %s to the sandbox", path);
    return 0;
}

static err make_folders(int dir, uid_t owner)
{
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *path = folders[i].path;
        if (mkdirat(dir, path, 0755) < 0 || fchmodat(dir, path, folders[i].mode, 0) < 0)
            return fail_errno("make %s of the image", path);
        TRY(give(dir, path, owner));
    }
    return 0;
}

static err write_file(int dir, const char *path, const void *p, size_t n, mode_t mode, uid_t owner)
{
    AUTO_FD fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return fail_errno("create %s of the image", path);
    TRY(fd_write_full(fd, p, n));
    if (fchmod(fd, mode) < 0)
        return fail_errno("set the mode of %s", path);
    return give(dir, path, owner);
}

static err copy_file(int dir, const char *from, const char *path, mode_t mode, uid_t owner)
{
    AUTO_FD in = open(from, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (in < 0 || fstat(in, &st) < 0)
        return fail_errno("open %s", from);
    AUTO_FD out = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (out < 0)
        return fail_errno("create %s of the image", path);
    for (off_t at = 0; at < st.st_size;) {
        ssize_t n = sendfile(out, in, &at, (size_t)(st.st_size - at));
        if (n <= 0)
            return fail_errno("copy %s", from);
    }
    if (fchmod(out, mode) < 0)
        return fail_errno("set the mode of %s", path);
    return give(dir, path, owner);
}

static err make_link(int dir, const char *path, const char *target, uid_t owner)
{
    if (symlinkat(target, dir, path) < 0)
        return fail_errno("create the link %s of the image", path);
    return give(dir, path, owner);
}

static err make_texts(int dir, uid_t owner)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        TRY(write_file(dir, files[i].path, files[i].content, strlen(files[i].content), 0644,
                       owner));
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        TRY(make_link(dir, links[i].path, links[i].target, owner));
    return 0;
}

static err copy_texts(int dir, uid_t owner)
{
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        char from[64];
        snprintf(from, sizeof from, "/%s", copies[i]);
        if (access(from, R_OK) == 0)
            TRY(copy_file(dir, from, copies[i], 0644, owner));
    }
    const char *bundle = host_ca_bundle();
    return bundle ? copy_file(dir, bundle, CA_BUNDLE, 0644, owner) : 0;
}

/* Debian's update-alternatives: /usr/bin/editor → /etc/alternatives/editor → /usr/bin/vim. Only
   links into /usr mean something inside. */
static err copy_alternatives(int dir, uid_t owner)
{
    DIR *d = opendir("/etc/alternatives");
    if (!d)
        return 0;
    err e = 0;
    for (const struct dirent *entry; !e && (entry = readdir(d));) {
        char target[PATH_MAX], path[NAME_MAX + 32];
        ssize_t n = readlinkat(dirfd(d), entry->d_name, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = 0;
        if (strncmp(target, "/usr/", 5) != 0)
            continue;
        snprintf(path, sizeof path, "etc/alternatives/%s", entry->d_name);
        e = make_link(dir, path, target, owner);
    }
    closedir(d);
    return e;
}

/* /bin and its kin as the host has them. */
static err make_merged(int dir, uid_t owner)
{
    for (size_t i = 0; image_host_merged[i]; i++) {
        const char *name = image_host_merged[i];
        char from[16], target[PATH_MAX];
        snprintf(from, sizeof from, "/%s", name);
        ssize_t n = readlink(from, target, sizeof target - 1);
        if (n > 0) {
            target[n] = 0;
            TRY(make_link(dir, name, target, owner));
        } else if (errno == EINVAL) { /* a folder of its own: mounted at start */
            if (mkdirat(dir, name, 0755) < 0)
                return fail_errno("make %s of the image", name);
            TRY(give(dir, name, owner));
        }
    }
    return 0;
}

static err copy_tools(int dir, const char *runtime, uid_t owner)
{
    char rg[PATH_MAX];
    if (snprintf(rg, sizeof rg, "%s/rg", runtime) >= (int)sizeof rg)
        return fail(E_INVALID, "the runtime folder %s has too long a name", runtime);
    if (access(rg, R_OK) < 0)
        return fail(E_UNAVAILABLE, "%s is missing: run `make setup`", rg);
    TRY(copy_file(dir, rg, ".pi/rg", 0755, owner));
    return write_file(dir, ".pi/hands", hands_blob_start, hands_blob_size(), 0755, owner);
}

err image_host_build(const char *path, const char *runtime, uid_t owner)
{
    AUTO_FD dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return fail_errno("open %s", path);
    TRY(make_folders(dir, owner));
    TRY(make_texts(dir, owner));
    TRY(copy_texts(dir, owner));
    TRY(copy_alternatives(dir, owner));
    TRY(make_merged(dir, owner));
    if (runtime)
        TRY(copy_tools(dir, runtime, owner));
    if (fchmod(dir, 0755) < 0)
        return fail_errno("set the mode of %s", path);
    TRY(give(dir, ".", owner));
    /* A skeleton that a power cut left half written would be used for good. */
    return syncfs(dir) < 0 ? fail_errno("sync %s", path) : 0;
}

static void add_source(crypto_generichash_state *h, const char *path)
{
    struct stat st;
    AUTO_BUF line = {0};
    if (stat(path, &st) == 0)
        buf_printf(&line, "%s %llu %llu %lld %lld.%ld\n", path, (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino, (long long)st.st_size,
                   (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    else
        buf_printf(&line, "%s -\n", path);
    crypto_generichash_update(h, (const unsigned char *)line.p, line.n);
}

#define KEY_BYTES 12

/* Changes whenever a skeleton built now could differ from an older one. /proc/self/exe stands for
   pi-hands, which is part of it. */
static void skeleton_key(const char *runtime, char out[2 * KEY_BYTES + 1])
{
    crypto_generichash_state h;
    crypto_generichash_init(&h, NULL, 0, KEY_BYTES + 4);
    const unsigned char version = SKELETON_VERSION;
    crypto_generichash_update(&h, &version, 1);
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        snprintf(path, sizeof path, "/%s", copies[i]);
        add_source(&h, path);
    }
    for (size_t i = 0; i < sizeof ca_bundles / sizeof *ca_bundles; i++)
        add_source(&h, ca_bundles[i]);
    add_source(&h, "/etc/alternatives");
    add_source(&h, "/proc/self/exe");
    snprintf(path, sizeof path, "%s/rg", runtime);
    add_source(&h, path);
    unsigned char digest[KEY_BYTES + 4];
    crypto_generichash_final(&h, digest, sizeof digest);
    sodium_bin2hex(out, 2 * KEY_BYTES + 1, digest, KEY_BYTES);
}

/* Built beside its place and renamed: another maker sees it whole or not at all. */
static err build_and_place(const char *images, const char *runtime, const char *final)
{
    char temp[IMAGE_PATH_MAX + 32];
    snprintf(temp, sizeof temp, "%s/host/.new-XXXXXX", images);
    if (!mkdtemp(temp))
        return fail_errno("make a folder in %s/host", images);
    err e = image_host_build(temp, runtime, geteuid());
    if (!e && rename(temp, final) < 0 && errno != EEXIST && errno != ENOTEMPTY)
        e = fail_errno("rename %s", temp);
    struct stat st;
    if (stat(temp, &st) == 0) { /* failed, or another maker was first */
        struct err_slot slot;
        err_save(&slot);
        tree_remove(temp);
        if (e)
            err_restore(&slot);
    }
    return e;
}

err image_host_prepare(const char *images, const char *runtime, char out[IMAGE_PATH_MAX])
{
    char key[2 * KEY_BYTES + 1], dir[IMAGE_PATH_MAX], final[IMAGE_PATH_MAX];
    skeleton_key(runtime, key);
    int n = snprintf(final, sizeof final, "%s/host/%s", images, key);
    if (n < 0 || (size_t)n >= sizeof final)
        return fail(E_INVALID, "the folder %s has too long a name", images);
    if (access(final, F_OK) != 0) {
        snprintf(dir, sizeof dir, "%s/host", images);
        if ((mkdir(images, 0755) < 0 && errno != EEXIST) ||
            (mkdir(dir, 0755) < 0 && errno != EEXIST))
            return fail_errno("make %s", dir);
        TRY(build_and_place(images, runtime, final));
    }
    memcpy(out, final, sizeof final);
    return 0;
}
