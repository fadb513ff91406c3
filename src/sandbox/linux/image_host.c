#include "sandbox/linux/image_host.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/tree.h"
#include "sandbox/hands_blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define SKELETON_VERSION 2 /* raise when the tables below change */

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
    TRY(make_merged(dir, owner));
    if (runtime)
        TRY(copy_tools(dir, runtime, owner));
    if (fchmod(dir, 0755) < 0)
        return fail_errno("set the mode of %s", path);
    return give(dir, ".", owner);
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

/* What every sandbox needs of its root, whatever the image has (a link or a file in its place is
   hidden). */
static const struct {
    const char *path;
    mode_t mode;
} tool_folders[] = {
    {".pi", 0755},  {"dev", 0755}, {"mnt", 0755},  {"mnt/session", 0755},
    {"proc", 0755}, {"sys", 0755}, {"tmp", 01777}, {"workspace", 0755},
};

static err build_tools(const char *path, const char *root)
{
    static const char *const names[] = {".pi/rg", ".pi/hands"};
    AUTO_FD from = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (mkdir(path, 0755) < 0)
        return fail_errno("make %s", path);
    AUTO_FD dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0 || dir < 0 || fchmod(dir, 0755) < 0)
        return fail_errno("open %s", path);
    for (size_t i = 0; i < sizeof tool_folders / sizeof *tool_folders; i++) {
        const char *folder = tool_folders[i].path;
        if (mkdirat(dir, folder, 0755) < 0 || fchmodat(dir, folder, tool_folders[i].mode, 0) < 0)
            return fail_errno("make %s of the tools", folder);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (linkat(from, names[i], dir, names[i], 0) < 0)
            return fail_errno("link %s of the tools", names[i]);
    }
    return 0;
}

/* Changes whenever a skeleton built now could differ from an older one: /proc/self/exe stands for
   pi-hands, which is part of it, and the boot id for the disk, as a power cut may have emptied what
   was not synced. */
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
    AUTO_BUF boot = {0};
    if (fd_read_file("/proc/sys/kernel/random/boot_id", 256, &boot) == 0)
        crypto_generichash_update(&h, (const unsigned char *)boot.p, boot.n);
    add_source(&h, "/proc/self/exe");
    snprintf(path, sizeof path, "%s/rg", runtime);
    add_source(&h, path);
    unsigned char digest[KEY_BYTES + 4];
    crypto_generichash_final(&h, digest, sizeof digest);
    sodium_bin2hex(out, 2 * KEY_BYTES + 1, digest, KEY_BYTES);
}

/* Takes the lock of the store: building, marking and pruning exclude each other. E_NOT_FOUND
 * without one. */
static err lock_store(const char *images, int *out)
{
    char path[IMAGE_PATH_MAX];
    if (snprintf(path, sizeof path, "%s/host", images) >= (int)sizeof path)
        return fail(E_INVALID, "the folder %s has too long a name", images);
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND, "there is no %s", path)
                               : fail_errno("open %s", path);
    while (flock(fd, LOCK_EX) < 0) { /* held for one build at most */
        if (errno != EINTR)
            return fail_errno("lock %s", path);
    }
    *out = fd_take(&fd);
    return 0;
}

static err make_store(const char *images)
{
    char path[IMAGE_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/host", images);
    if ((mkdir(images, 0755) < 0 && errno != EEXIST) || (mkdir(path, 0755) < 0 && errno != EEXIST))
        return fail_errno("make %s", path);
    return 0;
}

/* Built beside its place and renamed: it is there whole or not at all. */
static err build(const char *images, const char *runtime, const char *key)
{
    char temp[IMAGE_PATH_MAX + 64], final[IMAGE_PATH_MAX + 64], sub[IMAGE_PATH_MAX + 80];
    snprintf(temp, sizeof temp, "%s/host/.new", images);
    snprintf(final, sizeof final, "%s/host/%s", images, key);
    TRY(tree_remove(temp)); /* of a maker that died */
    snprintf(sub, sizeof sub, "%s/used", temp);
    if (mkdir(temp, 0755) < 0 || mkdir(sub, 0755) < 0)
        return fail_errno("make %s", sub);
    snprintf(sub, sizeof sub, "%s/root", temp);
    if (mkdir(sub, 0755) < 0)
        return fail_errno("make %s", sub);
    TRY(image_host_build(sub, runtime, geteuid()));
    char tools[IMAGE_PATH_MAX + 80];
    snprintf(tools, sizeof tools, "%s/tools", temp);
    TRY(build_tools(tools, sub));
    return rename(temp, final) < 0 ? fail_errno("rename %s", temp) : 0;
}

/* Removes a skeleton that nobody uses: rmdir of used/ fails while a mark is in it. */
static err prune_one(const char *images, const char *key)
{
    char path[IMAGE_PATH_MAX + NAME_MAX + 16], old[IMAGE_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/host/%s/used", images, key);
    if (rmdir(path) < 0)
        return errno == ENOTEMPTY || errno == EEXIST ? 0 : fail_errno("remove %s", path);
    snprintf(path, sizeof path, "%s/host/%s", images, key);
    snprintf(old, sizeof old, "%s/host/.old", images);
    TRY(tree_remove(old)); /* of a maker that died */
    if (rename(path, old) < 0)
        return fail_errno("rename %s", path);
    return tree_remove(old);
}

static err prune_others(const char *images, int store, const char *key)
{
    AUTO_FD again = openat(store, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d)
        return fail_errno("read %s/host", images);
    fd_take(&again);
    err e = 0;
    for (const struct dirent *entry; !e && (entry = readdir(d));) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, key) != 0)
            e = prune_one(images, entry->d_name);
    }
    closedir(d);
    return e;
}

static err mark_used(int store, const char *key, const char *id)
{
    char mark[128];
    if (snprintf(mark, sizeof mark, "%s/used/%s", key, id) >= (int)sizeof mark)
        return fail(E_INVALID, "the sandbox id %.60s is too long", id);
    AUTO_FD fd = openat(store, mark, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? fail_errno("create %s", mark) : 0;
}

err image_host_use(const char *images, const char *runtime, const char *id, struct image_host *out)
{
    char key[2 * KEY_BYTES + 1];
    struct image_host host;
    skeleton_key(runtime, key);
    if (snprintf(host.root, sizeof host.root, "%s/host/%s/root", images, key) >=
            (int)sizeof host.root ||
        snprintf(host.tools, sizeof host.tools, "%s/host/%s/tools", images, key) >=
            (int)sizeof host.tools)
        return fail(E_INVALID, "the folder %s has too long a name", images);
    AUTO_FD store = -1;
    err e = lock_store(images, &store);
    if (e == E_NOT_FOUND) {
        TRY(make_store(images));
        e = lock_store(images, &store);
    }
    TRY(e);
    if (access(host.root, F_OK) != 0) {
        TRY(build(images, runtime, key));
        TRY(prune_others(images, store, key));
    }
    TRY(mark_used(store, key, id));
    *out = host;
    return 0;
}

err image_host_release(const char *images, const char *id)
{
    AUTO_FD store = -1;
    err e = lock_store(images, &store);
    if (e)
        return e == E_NOT_FOUND ? 0 : e;
    DIR *d = fdopendir(store);
    if (!d)
        return fail_errno("read %s/host", images);
    for (const struct dirent *entry; !e && (entry = readdir(d));) {
        char mark[NAME_MAX + 128];
        snprintf(mark, sizeof mark, "%s/used/%.100s", entry->d_name, id);
        if (entry->d_name[0] != '.' && unlinkat(dirfd(d), mark, 0) < 0 && errno != ENOENT)
            e = fail_errno("remove %s", mark);
    }
    fd_take(&store); /* closedir closes it, and with it the lock */
    closedir(d);
    return e;
}
