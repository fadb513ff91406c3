#include "broker/registry.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/mem.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>

#define REGISTRATION_MAGIC 0x9e611571u
#define TOKEN_DIGITS 64
#define BUCKETS 1024 /* at most a few thousand sessions are open at once */

struct registry {
    pthread_mutex_t lock;   /* guards what follows, and refs of every registration */
    pthread_cond_t changed; /* count, or what a token stands for */
    struct registration *buckets[BUCKETS];
    size_t count;
    unsigned char
        hash_key[crypto_generichash_KEYBYTES]; /* random: buckets tell nothing of tokens */
};

struct registry *registry_new(void)
{
    struct registry *r = mem_alloc(sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    cond_init(&r->changed);
    rand_bytes(r->hash_key, sizeof r->hash_key);
    return r;
}

static bool token_ok(struct str token)
{
    if (token.n != TOKEN_DIGITS)
        return false;
    for (size_t i = 0; i < token.n; i++)
        if (!isxdigit((unsigned char)token.p[i]))
            return false;
    return true;
}

static void hash_token(const struct registry *r, struct str token, unsigned char out[32])
{
    crypto_generichash(out, 32, (const unsigned char *)token.p, token.n, r->hash_key,
                       sizeof r->hash_key);
}

static struct registration **slot_of(struct registry *r, const unsigned char hash[32])
{
    struct registration **at = &r->buckets[(hash[0] | hash[1] << 8) % BUCKETS];
    while (*at && sodium_memcmp((*at)->hash, hash, 32) != 0)
        at = &(*at)->next;
    return at;
}

static void registration_free(struct registration *g)
{
    CHECK(g, REGISTRATION_MAGIC);
    secret_free(g->key);
    pthread_mutex_destroy(&g->key_lock);
    buf_done(&g->sealed);
    mem_free(g->provider);
    mem_free(g->model);
    mem_free(g->api);
    mem_free(g->base_url);
    g->magic = 0;
    mem_free(g);
}

/* With the lock held. Returns what has to be freed once it is not. */
static struct registration *drop_ref(struct registration *g)
{
    return g && --g->refs == 0 ? g : NULL;
}

static struct registration *take_out(struct registry *r, struct registration **at)
{
    struct registration *g = *at;
    if (g == NULL)
        return NULL;
    *at = g->next;
    r->count--;
    pthread_cond_broadcast(&r->changed);
    return drop_ref(g);
}

void registration_unref(struct registration *g)
{
    if (g == NULL)
        return;
    struct registration *dead;
    {
        AUTO_LOCK(&g->owner->lock);
        dead = drop_ref(g);
    }
    if (dead)
        registration_free(dead);
}

static err copy_id(const json_t *message, const char *key, char out[ID_MAX])
{
    const char *text = json_get_c(message, key);
    if (text == NULL || *text == 0 || strlen(text) >= ID_MAX)
        return fail(E_INVALID, "a registration: \"%s\" is missing or too long", key);
    snprintf(out, ID_MAX, "%s", text);
    return 0;
}

static err copy_text(const json_t *message, const char *key, char **out)
{
    const char *text = json_get_c(message, key);
    if (text == NULL)
        return fail(E_INVALID, "a registration: \"%s\" is missing", key);
    *out = mem_strdup(text);
    return 0;
}

static err copy_sealed(const json_t *message, struct buf *out)
{
    struct str text = json_get_str(message, "sealed");
    if (text.p == NULL)
        return 0;
    buf_reserve(out, text.n);
    size_t n;
    if (sodium_base642bin((unsigned char *)out->p, text.n, text.p, text.n, NULL, &n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        return fail(E_INVALID, "a registration: \"sealed\" is not base64");
    out->n = n;
    return 0;
}

static err fill(struct registration *g, const json_t *message)
{
    TRY(copy_id(message, "tenant", g->tenant));
    TRY(copy_id(message, "session", g->session));
    TRY(copy_text(message, "provider", &g->provider));
    TRY(copy_text(message, "model", &g->model));
    TRY(copy_text(message, "api", &g->api));
    TRY(copy_text(message, "baseUrl", &g->base_url));
    g->custom = json_get_bool(message, "custom", false);
    return copy_sealed(message, &g->sealed);
}

err registry_describe(struct registry *r, const json_t *message, struct registration **out)
{
    struct registration *g = mem_alloc(sizeof *g);
    g->magic = REGISTRATION_MAGIC;
    g->owner = r;
    g->refs = 1;
    pthread_mutex_init(&g->key_lock, NULL);
    err e = fill(g, message);
    if (e) {
        registration_free(g);
        return e;
    }
    *out = g;
    return 0;
}

err registry_open(struct registry *r, const json_t *message)
{
    struct registration *g;
    struct str token = json_get_str(message, "token");
    if (!token_ok(token))
        return fail(E_INVALID, "session_open: \"token\" is not 64 hex digits");
    TRY(registry_describe(r, message, &g));
    hash_token(r, token, g->hash);
    struct registration *dead;
    {
        AUTO_LOCK(&r->lock);
        struct registration **at = slot_of(r, g->hash);
        dead = take_out(r, at);
        g->next = *at;
        *at = g;
        r->count++;
        pthread_cond_broadcast(&r->changed);
    }
    if (dead)
        registration_free(dead);
    return 0;
}

void registry_close(struct registry *r, const char *token)
{
    struct str text = str_of(token);
    if (!token_ok(text))
        return;
    unsigned char hash[32];
    hash_token(r, text, hash);
    struct registration *dead;
    {
        AUTO_LOCK(&r->lock);
        dead = take_out(r, slot_of(r, hash));
    }
    if (dead)
        registration_free(dead);
}

void registry_clear(struct registry *r)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (;;) {
            struct registration *dead;
            {
                AUTO_LOCK(&r->lock);
                if (r->buckets[i] == NULL)
                    break;
                dead = take_out(r, &r->buckets[i]);
            }
            if (dead)
                registration_free(dead);
        }
    }
}

void registry_free(struct registry *r)
{
    if (r == NULL)
        return;
    registry_clear(r);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

struct registration *registry_await(struct registry *r, struct str token, int64_t timeout_ms)
{
    if (!token_ok(token))
        return NULL;
    unsigned char hash[32];
    hash_token(r, token, hash);
    int64_t deadline = clock_monotonic_ms(clock_real()) + timeout_ms;
    AUTO_LOCK(&r->lock);
    for (;;) {
        struct registration *g = *slot_of(r, hash);
        int64_t left = deadline - clock_monotonic_ms(clock_real());
        if (g)
            g->refs++;
        if (g || left <= 0)
            return g;
        cond_wait_ms(&r->changed, &r->lock, left);
    }
}

struct registration *registry_find(struct registry *r, struct str token)
{
    return registry_await(r, token, 0);
}

size_t registry_count(struct registry *r)
{
    AUTO_LOCK(&r->lock);
    return r->count;
}

bool registry_await_count(struct registry *r, size_t count, int64_t timeout_ms)
{
    int64_t deadline = clock_monotonic_ms(clock_real()) + timeout_ms;
    AUTO_LOCK(&r->lock);
    while (r->count != count) {
        int64_t left = deadline - clock_monotonic_ms(clock_real());
        if (left <= 0)
            return false;
        cond_wait_ms(&r->changed, &r->lock, left);
    }
    return true;
}
