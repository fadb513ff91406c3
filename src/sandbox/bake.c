#include "sandbox/bake.h"

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/mem.h"
#include "images/import.h"
#include "images/merge.h"
#include "images/meta.h"
#include "images/store.h"
#include "images/wall.h"
#include "sandbox/exec.h"
#include "sandbox/packages.h"

#define KEY_HEX 32             /* of the sha256, in names */
#define RECIPE "1"             /* raise when scripts or layers change what comes out */
#define OUTPUT_MAX 4096        /* the end of what a package manager said */
#define LAYER_MAX (8ull << 30) /* bytes that packages may take */
#define STOP_GRACE_MS 1000

static void key_of(struct str text, char hex[IMAGE_DIGEST_MAX + 1])
{
    unsigned char sum[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(sum, (const unsigned char *)text.p, text.n);
    sodium_bin2hex(hex, IMAGE_DIGEST_MAX + 1, sum, sizeof sum);
}

static void name_of(const char *name, const char *key, char out[SANDBOX_IMAGE_MAX])
{
    snprintf(out, SANDBOX_IMAGE_MAX, "%s:%.*s", name, KEY_HEX, key);
}

/* ---- paths an admin allowed ---- */

struct import_job {
    const struct bake_request *r;
    const char *ref;
};

/* Behind a wall, for good: in a child. */
static err import_walled(void *arg, void *result)
{
    (void)result;
    const struct import_job *j = arg;
    const struct image_import import = {
        .images = j->r->place.images,
        .ref = j->ref,
        .source = j->r->spec.image,
        .limits = image_limits_default,
    };
    struct image_imported done;
    TRY(image_wall_enter(import.images, import.source));
    return image_import(&import, &done);
}

/* Where its links lead counts, not only its name. */
static err check_path(const struct bake_request *r, char real[PATH_MAX])
{
    char path[PATH_MAX], shown[PATH_MAX + 8];
    TRY(image_source_path(r->spec.image, path));
    if (realpath(path, real) == NULL)
        return fail_errno("find the image %s", path);
    snprintf(shown, sizeof shown, "dir:%s", real);
    if (!image_path_allowed(r->spec.image, r->allow_images) ||
        !image_path_allowed(shown, r->allow_images))
        return fail_as(E_FORBIDDEN, "image_not_allowed",
                       "the image %.100s is not beneath a path of --allow-image", r->spec.image);
    return 0;
}

static err import_path(const struct bake_request *r, char out_image[SANDBOX_IMAGE_MAX])
{
    char real[PATH_MAX], key[IMAGE_DIGEST_MAX + 1];
    struct stat st;
    struct image image;
    AUTO_BUF text = {0};
    TRY(check_path(r, real));
    if (stat(real, &st) < 0)
        return fail_errno("look at %s", real);
    buf_printf(&text, "%s\n%s\n%llu %llu %lld %lld.%09ld\n", r->spec.image, real,
               (unsigned long long)st.st_dev, (unsigned long long)st.st_ino, (long long)st.st_size,
               (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    key_of(buf_str(&text), key);
    name_of(IMAGE_NAME_LOCAL, key, out_image);
    if (image_resolve(r->place.images, out_image, &image) == 0)
        return 0;
    struct import_job j = {.r = r, .ref = out_image};
    return fork_call(import_walled, &j, NULL, 0, BAKE_TIMEOUT_MS);
}

/* ---- installing ---- */

/* $1 is a script of the table below, the packages follow. Only a failure prints. */
static const char wrapper[] =
    "export http_proxy=$2 https_proxy=$2 HTTP_PROXY=$2 HTTPS_PROXY=$2 HOME=/root LC_ALL=C.UTF-8\n"
    "script=$1; shift 2\n"
    "sh -ec \"$script\" sh \"$@\" >/tmp/bake.log 2>&1 </dev/null && exit 0\n"
    "status=$?; tail -c 3000 /tmp/bake.log >&2; exit $status\n";

static const char *const scripts[PACKAGE_KINDS] = {
    [PACKAGE_APT] =
        "command -v apt-get >/dev/null || { echo 'E: the image has no apt-get'; exit 1; }\n"
        "export DEBIAN_FRONTEND=noninteractive\n"
        /* No user to change to (a plain user's sandbox has one id), one request a connection. */
        "set_up='-q -o APT::Sandbox::User=root -o Acquire::http::Pipeline-Depth=0'\n"
        "set_up=\"$set_up -o Acquire::http::Proxy=$http_proxy -o Dpkg::Use-Pty=0\"\n"
        "set_up=\"$set_up -o Acquire::https::Proxy=$http_proxy -o APT::Update::Error-Mode=any\"\n"
        "apt-get $set_up update\n"
        "apt-get $set_up install -y --no-install-recommends -- \"$@\"\n"
        "rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /var/cache/apt/*.bin\n",
    [PACKAGE_NPM] =
        "command -v npm >/dev/null || { echo 'E: the image has no npm'; exit 1; }\n"
        "npm install --global --no-fund --no-audit --no-update-notifier --loglevel=error"
        " --proxy=$http_proxy --https-proxy=$http_proxy --noproxy= -- \"$@\"\n"
        "rm -rf /root/.npm\n",
    [PACKAGE_PIP] =
        "command -v python3 >/dev/null && python3 -m pip --version >/dev/null ||"
        " { echo 'E: the image has no pip for python3'; exit 1; }\n"
        "export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1\n"
        "export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1\n"
        "python3 -m pip install --proxy \"$http_proxy\" -- \"$@\"\n",
};

struct install {
    const struct bake_request *r;
    enum package_kind kind;
    char *argv[8 + PACKAGES_EACH_MAX];
    size_t argc;
};

struct installed {
    int status;
    char output[OUTPUT_MAX];
};

/* What answers there is hostile: without the maker's rights, in a child. */
static err talk_inside(void *arg, void *result)
{
    struct install *i = arg;
    struct installed *done = result;
    uid_t owner = i->r->place.socket_owner;
    const char *slash = strrchr(i->r->place.socket, '/');
    AUTO_BUF out = {0}, errs = {0};
    const struct exec_request request = {
        .argv = i->argv,
        .argc = i->argc,
        .cwd = "/",
        .in = -1,
        .out = -1,
        .err_fd = -1,
        .signals = -1,
        .keep_out = &out,
        .keep_errs = &errs,
        .keep_max = OUTPUT_MAX - 1,
    };
    struct exec_ended ended;
    /* The way there may be closed to that user. */
    if (chdir(i->r->place.dir) < 0)
        return fail_errno("enter %s", i->r->place.dir);
    if (owner != geteuid() && (setgroups(0, NULL) < 0 || setgid(owner) < 0 || setuid(owner) < 0))
        return fail_errno("give up rights");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    TRY(exec_run(slash ? slash + 1 : i->r->place.socket, &request, &ended));
    done->status = exec_status(&ended);
    memcpy(done->output, errs.n ? errs.p : "", errs.n);
    return 0;
}

static bool says_why(struct str line)
{
    static const char *const marks[] = {"E: ", "npm error ", "npm ERR! ", "ERROR: "};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (str_starts(line, str_of(marks[i])))
            return memmem(line.p, line.n, " code ", 6) == NULL;
    }
    return false;
}

void bake_reason(const char *output, char *out, size_t cap)
{
    struct str best = STR("it said nothing");
    for (const char *p = output; *p;) {
        struct str line = {p, strcspn(p, "\n")};
        p += line.n + (p[line.n] == '\n');
        if (line.n > 0)
            best = line;
        if (says_why(line))
            break;
    }
    size_t n = best.n < cap ? best.n : cap - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = best.p[i] >= ' ' && best.p[i] <= '~' ? best.p[i] : '?';
    out[n] = 0;
}

static err add_package(void *arg, enum package_kind kind, struct str name)
{
    struct install *i = arg;
    if (kind == i->kind)
        i->argv[i->argc++] = memcpy(mem_alloc(name.n + 1), name.p, name.n);
    return 0;
}

static err run_install(struct install *i)
{
    struct installed done;
    char why[160];
    err e = fork_call(talk_inside, i, &done, sizeof done, BAKE_TIMEOUT_MS);
    if (e)
        return fail_as(e, "packages_failed", "packages.%s could not be installed: %.300s",
                       package_kinds[i->kind], err_text());
    if (done.status == 0)
        return 0;
    done.output[OUTPUT_MAX - 1] = 0;
    bake_reason(done.output, why, sizeof why);
    return fail_as(E_UNPROCESSABLE, "packages_failed", "packages.%s could not be installed: %s",
                   package_kinds[i->kind], why);
}

static err install_kind(const struct bake_request *r, enum package_kind kind)
{
    static char proxy[64];
    snprintf(proxy, sizeof proxy, "http://127.0.0.1:%d", BAKE_PROXY_PORT);
    struct install i = {.r = r, .kind = kind};
    char *const words[] = {"sh", "-c", (char *)wrapper, "sh", (char *)scripts[kind], proxy};
    const size_t fixed = sizeof words / sizeof *words;
    memcpy(i.argv, words, sizeof words);
    i.argc = fixed;
    err e = packages_each(str_of(r->packages), add_package, &i);
    if (!e && i.argc > fixed)
        e = run_install(&i);
    while (i.argc > fixed)
        mem_free(i.argv[--i.argc]);
    return e;
}

static err install(const struct bake_request *r)
{
    AUTO_FD listener = -1;
    int line[2];
    TRY(r->provider->listen(&r->spec, &r->place, BAKE_PROXY_PORT, &listener));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) < 0)
        return fail_errno("make a socket pair");
    AUTO_FD ours = line[0], theirs = line[1]; /* ours hangs up at the end */
    (void)ours;
    TRY(r->open_way_out(r->arg, listener, theirs));
    fd_close(&listener); /* when the broker dies, connections are refused instead of waiting */
    fd_close(&theirs);
    for (int kind = 0; kind < PACKAGE_KINDS; kind++)
        TRY(install_kind(r, (enum package_kind)kind));
    return 0;
}

/* ---- the image ---- */

static err fill(const struct bake_request *r, const struct image *base, const char *key,
                struct image_scratch *s)
{
    char layer[PATH_MAX], source[512];
    struct image_limits limits = image_limits_default;
    struct image_counts counts;
    limits.bytes = LAYER_MAX;
    TRY(r->provider->layer(&r->place, layer));
    if (mkdirat(s->lock, "rootfs", 0755) < 0)
        return fail_errno("make %s/rootfs", s->path);
    AUTO_FD root = openat(s->lock, "rootfs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || fchmod(root, 0755) < 0)
        return fail_errno("open %s/rootfs", s->path);
    TRY(images_merge(&(struct merge_request){.base = base->rootfs,
                                             .upper = layer,
                                             .uid_base = r->place.uid_base,
                                             .limits = limits,
                                             .out = root},
                     &counts));
    int n = snprintf(source, sizeof source, "%s + %s", r->spec.image, r->packages);
    for (int i = 0; i < n && i < (int)sizeof source - 1; i++)
        source[i] = source[i] == '\n' ? ' ' : source[i];
    AUTO_JSON beneath = NULL;
    TRY(image_meta_read(base->folder, &beneath));
    return image_meta_write(s->path,
                            &(struct image_meta){.name = IMAGE_NAME_BAKED,
                                                 .config = json_object_get(beneath, "config"),
                                                 .digest = key,
                                                 .source = source,
                                                 .architecture = "",
                                                 .counts = counts});
}

static err commit(const struct bake_request *r, const struct image *base, const char *key,
                  const char *ref)
{
    struct image_scratch s = {.lock = -1};
    struct image_name name;
    bool known;
    TRY(image_name_parse(ref, &name));
    TRY(image_scratch_open(r->place.images, &s));
    err e = fill(r, base, key, &s);
    if (!e)
        e = image_scratch_commit(r->place.images, &s, &name, key, &known);
    image_scratch_close(&s);
    return e;
}

static err build(const struct bake_request *r, const char *key, const char *ref)
{
    struct image base;
    TRY(r->provider->create(&r->spec, &r->place));
    TRY(image_held(r->place.images, r->spec.image, r->spec.id, &base));
    TRY(r->provider->start(&r->spec, &r->place));
    TRY(install(r));
    TRY(r->provider->stop(&r->spec, &r->place, STOP_GRACE_MS));
    return commit(r, &base, key, ref);
}

/* The key of the image with these packages; E_INVALID where none can be made. */
static err derived_key(const struct bake_request *r, char key[IMAGE_DIGEST_MAX + 1])
{
    struct image base;
    AUTO_BUF text = {0};
    if (strcmp(r->spec.image, "host") == 0)
        return fail(E_INVALID, "packages need an image of the store: `host` is this machine's own");
    if (r->provider->listen == NULL || r->provider->layer == NULL)
        return fail(E_UNAVAILABLE, "the sandbox provider %s cannot install packages",
                    r->provider->name);
    TRY(image_resolve(r->place.images, r->spec.image, &base));
    buf_printf(&text, "%s\n%s\n%s", RECIPE, base.digest, r->packages);
    key_of(buf_str(&text), key);
    return 0;
}

static err bake_packages(const struct bake_request *r, char out_image[SANDBOX_IMAGE_MAX])
{
    char key[IMAGE_DIGEST_MAX + 1];
    struct image there;
    TRY(derived_key(r, key));
    name_of(IMAGE_NAME_BAKED, key, out_image);
    if (image_resolve(r->place.images, out_image, &there) == 0)
        return 0;
    err e = build(r, key, out_image);
    struct err_slot why = {0};
    if (e)
        err_save(&why);
    err gone = r->provider->destroy(&r->spec, &r->place);
    return e ? err_restore(&why) : gone;
}

err sandbox_bake(const struct bake_request *r, char out_image[SANDBOX_IMAGE_MAX])
{
    struct bake_request on_store = *r;
    char image[SANDBOX_IMAGE_MAX];
    snprintf(image, sizeof image, "%s", r->spec.image);
    if (image_name_check(image) == E_FORBIDDEN)
        TRY(import_path(r, image));
    memcpy(on_store.spec.image, image, sizeof image);
    if (r->packages[0])
        return bake_packages(&on_store, out_image);
    memcpy(out_image, image, sizeof image);
    return 0;
}
