#include "hands/copy_out.h"

#include "base/clock.h"
#include "base/fd.h"
#include "hands/copy_walk.h"
#include "hands/frames.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FLUSH_BYTES FRAME_CHUNK
#define FRAME_HEAD 5
#define QUIET_MS 1000
#define CLOCK_EVERY 64 /* steps between looks at the clock */

int copy_out_image_fd = -1;

/* The service's own folders, where the image has none or something else: nobody added them. */
static const char *const own_folders[] = {"/etc",         "/etc/alternatives", "/mnt",
                                          "/mnt/session", SANDBOX_OUTPUTS,     SANDBOX_TOOL_OUTPUT,
                                          "/root",        SANDBOX_WORKDIR};

struct copy {
    int fd;
    const char *root, *only;
    bool contents, changes, before, files_only;
    uint64_t entries_left, bytes_left, file_bytes;
    struct buf out;
    int64_t said_ms; /* when something was sent last */
    unsigned steps;
    bool truncated;
};

static int64_t now_ms(void)
{
    return clock_monotonic_ms(clock_real());
}

/* ---- sending ---- */

static err flush(struct copy *c)
{
    TRY(fd_write_full(c->fd, c->out.p, c->out.n));
    buf_clear(&c->out);
    c->said_ms = now_ms();
    return 0;
}

static void put_number(char *at, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(v >> 8 * i & 0xff);
}

static void put_head(char *at, enum frame_type type, size_t payload)
{
    put_number(at, payload + 1, 4);
    at[4] = (char)type;
}

static err queue(struct copy *c, enum frame_type type, struct str payload)
{
    frame_add(&c->out, type, payload);
    return c->out.n >= FLUSH_BYTES ? flush(c) : 0;
}

static err step(void *arg)
{
    struct copy *c = arg;
    if (++c->steps % CLOCK_EVERY != 0 || now_ms() - c->said_ms < QUIET_MS)
        return 0;
    TRY(queue(c, FRAME_PONG, STR("{}")));
    return flush(c);
}

/* ---- one entry ---- */

static err send_entry(struct copy *c, const struct walk_found *f)
{
    const struct walk_node *now = &f->nodes[WALK_NOW], *before = &f->nodes[WALK_BEFORE];
    struct str targets[WALK_SIDES] = {0};
    for (int i = 0; i < WALK_SIDES; i++)
        if (f->nodes[i].type == COPYOUT_LINK)
            targets[i] = buf_str(&f->nodes[i].target);
    char fixed[COPY_ENTRY_BYTES] = {(char)f->change, (char)now->type, (char)before->type};
    bool is = now->type != COPYOUT_NONE, was = before->type != COPYOUT_NONE;
    put_number(fixed + 4, is ? now->mode : 0, 4);
    put_number(fixed + 8, was ? before->mode : 0, 4);
    put_number(fixed + 12, f->path.n, 4);
    put_number(fixed + 16, targets[WALK_NOW].n, 4);
    put_number(fixed + 20, targets[WALK_BEFORE].n, 4);
    put_number(fixed + 24, is ? now->size : 0, 8);
    put_number(fixed + 32, was ? before->size : 0, 8);
    put_number(fixed + 40, is ? (uint64_t)now->mtime_ns : 0, 8);
    put_number(fixed + 48, was ? (uint64_t)before->mtime_ns : 0, 8);
    put_number(fixed + 56, is ? (uint64_t)now->ctime_ns : 0, 8);
    put_number(fixed + 64, was ? (uint64_t)before->ctime_ns : 0, 8);
    AUTO_BUF payload = {0};
    buf_add(&payload, fixed, sizeof fixed);
    buf_add_str(&payload, f->path);
    buf_add_str(&payload, targets[WALK_NOW]);
    buf_add_str(&payload, targets[WALK_BEFORE]);
    return queue(c, FRAME_COPY_ENTRY, buf_str(&payload));
}

/* Reads straight into the queue, behind a frame's head. *out_n: 0 at the end, -1 on failure. */
static err send_piece(struct copy *c, enum frame_type type, int fd, size_t want, ssize_t *out_n)
{
    size_t most = FRAME_CHUNK < want ? FRAME_CHUNK : want;
    buf_reserve(&c->out, FRAME_HEAD + most);
    char *head = c->out.p + c->out.n;
    do
        *out_n = read(fd, head + FRAME_HEAD, most);
    while (*out_n < 0 && errno == EINTR);
    if (*out_n <= 0)
        return 0;
    put_head(head, type, (size_t)*out_n);
    c->out.n += FRAME_HEAD + (size_t)*out_n;
    return c->out.n >= FLUSH_BYTES ? flush(c) : step(c);
}

static bool untouched(int fd, const struct walk_node *then)
{
    struct walk_node now = {0};
    uint64_t mount;
    return walk_look(fd, "", &now, &mount) && now.type == then->type && now.size == then->size &&
           now.ctime_ns == then->ctime_ns && now.mtime_ns == then->mtime_ns;
}

/* Exactly the size told, unless the trouble says otherwise; what was appended since is left. */
static err send_content(struct copy *c, enum frame_type type, int take_file,
                        const struct walk_node *node, enum copyout_trouble *out)
{
    AUTO_FD file = take_file;
    if (file < 0) {
        *out = errno == ENOENT || errno == ESTALE ? COPYOUT_MOVED : COPYOUT_REFUSED;
        return 0;
    }
    uint64_t left = node->size;
    ssize_t n = 1;
    while (left > 0 && n > 0) {
        TRY(send_piece(c, type, file, left < SIZE_MAX ? (size_t)left : SIZE_MAX, &n));
        left -= n > 0 ? (uint64_t)n : 0;
    }
    *out = n < 0                                ? COPYOUT_REFUSED
           : left == 0 && untouched(file, node) ? COPYOUT_FINE
                                                : COPYOUT_MOVED;
    return 0;
}

static bool wants(const struct copy *c, const struct walk_found *f, int side)
{
    return c->contents && f->nodes[side].type == COPYOUT_FILE &&
           (side == WALK_NOW || (c->before && c->changes));
}

static err send_contents(struct copy *c, const struct walk_found *f, int reference)
{
    enum copyout_trouble troubles[WALK_SIDES] = {COPYOUT_FINE, COPYOUT_FINE};
    for (int i = WALK_SIDES - 1; i >= 0; i--) { /* before, then now */
        if (!wants(c, f, i))
            continue;
        if (f->nodes[i].size > c->file_bytes) {
            troubles[i] = COPYOUT_TOO_LARGE;
            continue;
        }
        int file =
            reference >= 0 ? walk_reopen_file(reference) : walk_open_file(f->dirs[i], f->name);
        TRY(send_content(c, i == WALK_NOW ? FRAME_COPY_DATA : FRAME_COPY_OLD, file, &f->nodes[i],
                         &troubles[i]));
    }
    char done[2] = {(char)troubles[WALK_NOW], (char)troubles[WALK_BEFORE]};
    return queue(c, FRAME_COPY_DONE, (struct str){done, sizeof done});
}

/* Whether the entry, with its content, is within the limits; then it is taken off them. */
static bool afford(struct copy *c, const struct walk_found *f)
{
    uint64_t bytes = 0;
    for (int i = 0; i < WALK_SIDES; i++)
        if (wants(c, f, i) && f->nodes[i].size <= c->file_bytes &&
            __builtin_add_overflow(bytes, f->nodes[i].size, &bytes))
            bytes = UINT64_MAX;
    if (c->entries_left == 0 || bytes > c->bytes_left)
        return false;
    c->entries_left--;
    c->bytes_left -= bytes;
    return true;
}

static bool path_is_below(const struct copy *c, struct str path, const char *absolute)
{
    size_t n = strcmp(c->root, "/") == 0 ? 0 : strlen(c->root);
    return strncmp(absolute, c->root, n) == 0 && absolute[n] == '/' &&
           str_is(path, absolute + n + 1);
}

static bool is_own_folder(const struct copy *c, const struct walk_found *f)
{
    if (f->nodes[WALK_NOW].type != COPYOUT_FOLDER || f->nodes[WALK_BEFORE].type == COPYOUT_FOLDER)
        return false;
    for (size_t i = 0; i < sizeof own_folders / sizeof *own_folders; i++)
        if (path_is_below(c, f->path, own_folders[i]))
            return true;
    return false;
}

/* Written by us, because it was too long for the model (R33): no change of the agent's. */
static bool is_tool_output(const struct copy *c, const struct walk_found *f)
{
    return strcmp(c->root, "/") == 0 && str_starts(f->path, STR("mnt/session/tool-output/"));
}

static bool is_told(const struct copy *c, const struct walk_found *f)
{
    if (c->files_only && f->nodes[WALK_NOW].type != COPYOUT_FILE)
        return false;
    return !is_own_folder(c, f) && !(c->changes && is_tool_output(c, f));
}

static err tell(struct copy *c, const struct walk_found *f, int reference, bool *stop)
{
    if (!is_told(c, f))
        return 0;
    if (!afford(c, f)) {
        c->truncated = true;
        *stop = true;
        return 0;
    }
    TRY(send_entry(c, f));
    return send_contents(c, f, reference);
}

static err found(void *arg, const struct walk_found *f, bool *stop)
{
    return tell(arg, f, -1, stop);
}

/* ---- the conversation ---- */

/* 0 or an errno; -1 in *out_dir: there is none. */
static int open_below(int at, const char *path, uint64_t flags, int *out)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
                                      (at >= 0 ? RESOLVE_BENEATH : 0)};
    *out = (int)syscall(SYS_openat2, at >= 0 ? at : AT_FDCWD, path, &how, sizeof how);
    return *out >= 0 || errno == ENOENT ? 0 : errno;
}

static int open_image_folder(const char *root)
{
    int dir = -1;
    open_below(copy_out_image_fd, root[1] ? root + 1 : ".", O_RDONLY | O_DIRECTORY, &dir);
    return dir; /* a file or a link there: nothing that could have stayed the same */
}

static err copy_only(struct copy *c, int dir)
{
    AUTO_FD reference = -1;
    struct walk_node nodes[WALK_SIDES] = {0};
    uint64_t mount, root_mount;
    bool stop = false;
    open_below(dir, c->only, O_PATH | O_NOFOLLOW, &reference);
    walk_look(dir, "", &nodes[WALK_NOW], &root_mount);
    if (reference < 0 || !walk_look(reference, "", &nodes[WALK_NOW], &mount) ||
        mount != root_mount || nodes[WALK_NOW].type != COPYOUT_FILE)
        return 0;
    struct walk_found f = {.path = str_of(c->only), .nodes = nodes};
    return tell(c, &f, reference, &stop);
}

static err send_end(struct copy *c, const struct walk_result *r)
{
    AUTO_JSON o = json_pack("{s:I, s:b}", "leftOut", (json_int_t)r->left_out, "truncated",
                            c->truncated || r->cut);
    AUTO_BUF text = {0};
    json_write(o, &text);
    TRY(queue(c, FRAME_COPY_END, buf_str(&text)));
    return flush(c);
}

static err copy(struct copy *c, int take_dir)
{
    struct walk_result result = {0};
    if (c->only) {
        AUTO_FD dir = take_dir;
        TRY(dir < 0 ? 0 : copy_only(c, dir));
    } else {
        int dirs[WALK_SIDES] = {take_dir, c->changes ? open_image_folder(c->root) : -1};
        struct walk_hooks hooks = {.found = found, .step = step, .arg = c};
        TRY(walk_run(dirs, c->changes, &hooks, &result));
    }
    return send_end(c, &result);
}

static uint64_t limit(const json_t *request, const char *name)
{
    int64_t n = json_get_int(request, name, INT64_MAX);
    return n > 0 ? (uint64_t)n : 0;
}

static bool plain_text(struct str s)
{
    return s.p == NULL || !str_has_nul(s);
}

err copy_out_serve(int fd, const json_t *request, const char **out_code, const char **out_message)
{
    struct copy c = {.fd = fd,
                     .root = json_get_c(request, "root"),
                     .only = json_get_c(request, "only"),
                     .contents = json_get_bool(request, "contents", false),
                     .changes = json_get_bool(request, "changes", false),
                     .before = json_get_bool(request, "before", false),
                     .files_only = json_get_bool(request, "filesOnly", false),
                     .entries_left = limit(request, "entries"),
                     .bytes_left = limit(request, "bytes"),
                     .file_bytes = limit(request, "fileBytes"),
                     .said_ms = now_ms()};
    int dir = -1, rc;
    if (c.root == NULL || c.root[0] != '/' || !plain_text(json_get_str(request, "root")) ||
        !plain_text(json_get_str(request, "only"))) {
        *out_code = "bad_frame";
        *out_message = "COPY_OUT needs root, an absolute path";
        return 0;
    }
    if (c.changes && copy_out_image_fd < 0) {
        *out_code = "no_image";
        *out_message = "this sandbox does not know what its image was";
        return 0;
    }
    rc = open_below(-1, c.root, O_RDONLY | O_DIRECTORY, &dir);
    if (rc != 0) {
        *out_code = rc == ENOTDIR || rc == ELOOP ? "not_a_folder" : "internal";
        *out_message = strerror(rc);
        return 0;
    }
    err e = copy(&c, dir);
    buf_done(&c.out);
    return e;
}
