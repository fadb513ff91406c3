/* Finds the engine, checks keys, hashes what is put. */
#include "objects/objects.h"

#include <sodium.h>
#include <string.h>

#include "objects/engine.h"

static const struct object_engine *const engines[] = {&objects_fs, NULL};

static bool is_key_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

/* A key, or a prefix, which may be empty and ends in '/'. */
static err check_key(const char *key, bool prefix)
{
    size_t n = strlen(key);
    bool ok = n <= OBJECT_KEY_MAX && (prefix ? n == 0 || key[n - 1] == '/' : n > 0);
    for (size_t i = 0; ok && i < n; i++) {
        bool first = i == 0 || key[i - 1] == '/';
        if (key[i] == '/')
            ok = !first && (prefix || i + 1 < n);
        else
            ok = is_key_byte(key[i]) && !(first && key[i] == '.');
    }
    return ok ? 0 : fail(E_INVALID, "%.64s is no key of an object", key);
}

err objects_open(const char *url, struct objects **out)
{
    if (url[0] == '/')
        return objects_fs.open(url, out);
    for (size_t i = 0; engines[i]; i++) {
        size_t n = strlen(engines[i]->scheme);
        if (strncmp(url, engines[i]->scheme, n) == 0)
            return engines[i]->open(url + n, out);
    }
    return fail(E_INVALID,
                "%.128s: objects are kept in a folder, file:/absolute/path; other stores are not "
                "built yet",
                url);
}

void objects_close(struct objects *o)
{
    if (o)
        o->engine->close(o);
}

err objects_put_begin(struct objects *o, const char *key, struct object_put **out)
{
    TRY(check_key(key, false));
    TRY(o->engine->put_begin(o, key, out));
    crypto_hash_sha256_init(&(*out)->hash);
    return 0;
}

err objects_put_write(struct object_put *p, struct str bytes)
{
    TRY(p->engine->put_write(p, bytes));
    crypto_hash_sha256_update(&p->hash, (const unsigned char *)bytes.p, bytes.n);
    p->size += bytes.n;
    return 0;
}

err objects_put_end(struct object_put *take_p, struct object_info *out)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    struct object_info info = {.size = take_p->size};
    crypto_hash_sha256_final(&take_p->hash, hash);
    sodium_bin2hex(info.sha256, sizeof info.sha256, hash, sizeof hash);
    TRY(take_p->engine->put_end(take_p));
    if (out)
        *out = info;
    return 0;
}

void objects_put_abort(struct object_put *take_p)
{
    if (take_p)
        take_p->engine->put_abort(take_p);
}

err objects_put(struct objects *o, const char *key, struct str bytes)
{
    struct object_put *p;
    TRY(objects_put_begin(o, key, &p));
    err e = objects_put_write(p, bytes);
    if (e) {
        objects_put_abort(p);
        return e;
    }
    return objects_put_end(p, NULL);
}

err objects_get(struct objects *o, const char *key, uint64_t from, uint64_t length,
                struct object_get **out, uint64_t *out_size)
{
    uint64_t size;
    TRY(check_key(key, false));
    TRY(o->engine->get(o, key, from, length, out, &size));
    if (out_size)
        *out_size = size;
    return 0;
}

err objects_get_read(struct object_get *g, void *out, size_t cap, size_t *out_n)
{
    return g->engine->get_read(g, out, cap, out_n);
}

void objects_get_close(struct object_get *g)
{
    if (g)
        g->engine->get_close(g);
}

err objects_read(struct objects *o, const char *key, uint64_t max, struct buf *out)
{
    char block[16384];
    struct object_get *g;
    uint64_t size;
    size_t n = 1;
    TRY(objects_get(o, key, 0, max, &g, &size));
    err e = size > max ? fail(E_TOO_LARGE, "the object %s is larger than it should be", key) : 0;
    while (!e && n > 0) {
        e = objects_get_read(g, block, sizeof block, &n);
        buf_add(out, block, e ? 0 : n);
    }
    objects_get_close(g);
    return e;
}

err objects_size(struct objects *o, const char *key, uint64_t *out)
{
    TRY(check_key(key, false));
    return o->engine->size(o, key, out);
}

err objects_delete(struct objects *o, const char *key)
{
    TRY(check_key(key, false));
    return o->engine->remove(o, key);
}

err objects_list(struct objects *o, const char *prefix, object_fn fn, void *arg)
{
    TRY(check_key(prefix, true));
    return o->engine->list(o, prefix, fn, arg);
}
