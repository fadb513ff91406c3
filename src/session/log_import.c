#include "session/log_import.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "hands/frames.h"

#define IMPORT_MAGIC 0x10619f0fu
#define ID_BYTES_MAX 128
#define OUT_BYTES (256u << 10)
#define CODE "invalid_log"

/* Which ids were seen, as hashes: a log may have a million lines. */
struct id_set {
    uint64_t *slots; /* 0: free */
    size_t cap, n;   /* cap is a power of two */
};

struct log_import {
    unsigned magic;
    char session[ID_BYTES_MAX], path[PATH_MAX], part[PATH_MAX], folder[PATH_MAX];
    int fd;
    unsigned char key[crypto_shorthash_KEYBYTES];
    struct id_set ids;
    int64_t line;     /* lines before this one */
    struct buf begun; /* a line that has not ended */
    struct buf out;   /* to be written */
    int64_t bytes;
};

/* ---- ids ---- */

static void set_put(struct id_set *set, uint64_t hash);

static void set_grow(struct id_set *set)
{
    struct id_set old = *set;
    set->cap = old.cap ? size_mul(old.cap, 2) : 1024;
    set->n = 0;
    set->slots = mem_alloc(size_mul(set->cap, sizeof *set->slots));
    for (size_t i = 0; i < old.cap; i++)
        if (old.slots[i])
            set_put(set, old.slots[i]);
    mem_free(old.slots);
}

static size_t set_find(const struct id_set *set, uint64_t hash)
{
    size_t at = hash & (set->cap - 1);
    while (set->slots[at] && set->slots[at] != hash)
        at = (at + 1) & (set->cap - 1);
    return at;
}

static bool set_has(const struct id_set *set, uint64_t hash)
{
    return set->cap && set->slots[set_find(set, hash)] == hash;
}

static void set_put(struct id_set *set, uint64_t hash)
{
    if (set->n * 2 >= set->cap)
        set_grow(set);
    set->slots[set_find(set, hash)] = hash;
    set->n++;
}

/* Keyed: whoever writes the log cannot make two ids look alike. */
static uint64_t hash_of(const struct log_import *i, struct str id)
{
    uint64_t hash;
    crypto_shorthash((unsigned char *)&hash, (const unsigned char *)id.p, id.n, i->key);
    return hash ? hash : 1;
}

/* ---- lines ---- */

static err wrong(const struct log_import *i, const char *what)
{
    return fail_as(E_INVALID, CODE, "line %lld of the log %s", (long long)i->line + 1, what);
}

static err write_out(struct log_import *i, size_t least)
{
    if (i->out.n < least)
        return 0;
    TRY(fd_write_full(i->fd, i->out.p, i->out.n));
    i->bytes += (int64_t)i->out.n;
    buf_clear(&i->out);
    return 0;
}

static err take_header(struct log_import *i, json_t *header)
{
    const char *type = json_get_c(header, "type");
    if (type == NULL || strcmp(type, "session") != 0)
        return wrong(i, "is no header: a log of Pi begins with {\"type\":\"session\",…}");
    if (json_get_int(header, "version", 0) != 3)
        return wrong(i, "says another version than 3: open it once with a newer Pi, which brings "
                        "it up to date");
    json_set_str(header, "id", str_of(i->session));
    json_set_str(header, "cwd", STR(SANDBOX_WORKDIR));
    json_write(header, &i->out);
    buf_add_char(&i->out, '\n');
    return 0;
}

static err take_entry(struct log_import *i, struct str text, const json_t *entry)
{
    struct str id = json_get_str(entry, "id"), parent = json_get_str(entry, "parentId");
    if (json_get_str(entry, "type").n == 0 || str_is(json_get_str(entry, "type"), "session"))
        return wrong(i, "has no type of an entry");
    if (id.n == 0 || id.n > ID_BYTES_MAX)
        return wrong(i, "has no id");
    if (set_has(&i->ids, hash_of(i, id)))
        return wrong(i, "has the id of a line before it");
    const json_t *none = json_object_get(entry, "parentId");
    if (parent.p == NULL && none && !json_is_null(none))
        return wrong(i, "has a parentId that is no text");
    if (parent.p && !set_has(&i->ids, hash_of(i, parent)))
        return wrong(i, "has a parentId that no line before it has");
    set_put(&i->ids, hash_of(i, id));
    buf_add_str(&i->out, text);
    buf_add_char(&i->out, '\n');
    return 0;
}

static err take_line(struct log_import *i, struct str text)
{
    AUTO_JSON j = NULL;
    if (json_read_log(text, &j) || !json_is_object(j))
        return wrong(i, "is no JSON object");
    TRY(i->line == 0 ? take_header(i, j) : take_entry(i, text, j));
    i->line++;
    return write_out(i, OUT_BYTES);
}

err log_import_feed(struct log_import *i, struct str bytes)
{
    CHECK(i, IMPORT_MAGIC);
    const char *lf;
    while (bytes.n && (lf = memchr(bytes.p, '\n', bytes.n))) {
        struct str line = {bytes.p, (size_t)(lf - bytes.p)};
        bytes = (struct str){lf + 1, bytes.n - line.n - 1};
        if (i->begun.n == 0) {
            TRY(take_line(i, line));
            continue;
        }
        buf_add_str(&i->begun, line);
        err e = take_line(i, buf_str(&i->begun));
        buf_clear(&i->begun);
        TRY(e);
    }
    if (i->begun.n + bytes.n > LOG_IMPORT_LINE_MAX)
        return wrong(i, "is longer than 64 MiB");
    buf_add_str(&i->begun, bytes);
    return 0;
}

/* ---- life ---- */

err log_import_begin(const char *dir, const char *tenant, const char *session,
                     struct log_import **out)
{
    struct log_import *i = mem_alloc(sizeof *i);
    i->magic = IMPORT_MAGIC;
    i->fd = -1;
    randombytes_buf(i->key, sizeof i->key);
    snprintf(i->session, sizeof i->session, "%s", session);
    int n = snprintf(i->part, sizeof i->part, "%s/%s/%s.part", dir, tenant, session);
    snprintf(i->folder, sizeof i->folder, "%s/%s", dir, tenant);
    snprintf(i->path, sizeof i->path, "%s/%s/%s.jsonl", dir, tenant, session);
    err e = 0;
    if (n < 0 || n >= (int)sizeof i->part - 1)
        e = fail(E_INVALID, "the path of the log is too long");
    else if (mkdir(i->folder, 0700) < 0 && errno != EEXIST)
        e = fail_errno("make the folder %s", i->folder);
    else if ((i->fd = open(i->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)) <
             0)
        e = fail_errno("create %s", i->part);
    if (e) {
        log_import_abort(i);
        return e;
    }
    *out = i;
    return 0;
}

void log_import_abort(struct log_import *i)
{
    if (i == NULL)
        return;
    CHECK(i, IMPORT_MAGIC);
    if (i->fd >= 0)
        unlink(i->part);
    fd_close(&i->fd);
    buf_done(&i->begun);
    buf_done(&i->out);
    mem_free(i->ids.slots);
    i->magic = 0;
    mem_free(i);
}

static err finish(struct log_import *i)
{
    if (i->begun.n > 0)
        TRY(take_line(i, buf_str(&i->begun)));
    if (i->line == 0)
        return fail_as(E_INVALID, CODE, "the log is empty");
    TRY(write_out(i, 1));
    AUTO_FD folder = open(i->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fdatasync(i->fd) < 0 || rename(i->part, i->path) < 0 || folder < 0 || fsync(folder) < 0)
        return fail_errno("put the log of %s in place", i->session);
    return 0;
}

err log_import_finish(struct log_import *i, int64_t *out_bytes)
{
    CHECK(i, IMPORT_MAGIC);
    err e = finish(i);
    if (!e) {
        fd_close(&i->fd); /* abort does not take the file away any more */
        *out_bytes = i->bytes;
    }
    struct err_slot slot;
    err_save(&slot);
    log_import_abort(i);
    return e ? err_restore(&slot) : 0;
}
