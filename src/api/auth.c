/* API keys at the door (R14). */
#include "api/auth.h"

#include <sodium.h>
#include <zlib.h>

#include "api/service.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/secret.h"
#include "db/db.h"
#include "session/quota.h"

#define VERIFIED_MS 60000 /* then argon2 again */
#define CHECKED_MS 1000   /* then a look at the row: another process may have revoked the key */
#define SLOTS 8192        /* each token may be in one of two */
#define HASHING_MAX 2
#define WAITING_MAX 4 /* other tokens, for a turn at argon2; more would take every worker */
#define HASH_WAIT_MS 10000
#define FAILURES_MAX 10   /* wrong secrets for one key id … */
#define FAILURES_MS 60000 /* … in this time; then unknown tokens for it wait */
#define FAILURE_SLOTS 1024
#define OPSLIMIT 2
#define MEMLIMIT ((size_t)19456 * 1024)

static const char base62[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

enum {
    AUTH_MAGIC = 0x41555448
};

/* A token seen: verified (key set) or refused (key_id empty). */
struct seen {
    unsigned char digest[32]; /* keyed, so that memory does not show what would pass */
    bool used, good;
    int64_t verified_at, checked_at; /* monotonic ms; of a refused one verified_at = when */
    struct http_auth who;
};

struct failures { /* of one lookup id */
    char lookup[KEY_LOOKUP_LENGTH];
    int count;
    int64_t since;
};

/* A token that is being hashed, or waits for its turn. Whoever else brings it waits for the
   verdict: a client with many requests at once has one key. */
struct flight {
    bool used;
    unsigned char digest[32];
};

struct auth {
    unsigned magic;
    struct db *db;
    const struct clock *clock;
    unsigned char digest_key[32];

    pthread_mutex_t cache_lock; /* lock order 8 */
    struct seen *seen;
    struct failures failures[FAILURE_SLOTS];

    pthread_mutex_t turn_lock; /* guards what follows */
    pthread_cond_t turn_free;  /* broadcast at each end of a flight */
    struct flight flights[HASHING_MAX + WAITING_MAX];
    int hashing, waiting;
};

/* What the database says of a lookup id. */
struct key_row {
    struct str lookup;
    bool found, revoked;
    char hash[KEY_HASH_MAX];
    struct http_auth who;
};

static const char sql_by_lookup[] =
    "SELECT tenant_id, id, scope, hash, revoked_at FROM api_keys WHERE lookup = $1";

/* Tokens */

static void checksum(struct str before, char out[6])
{
    unsigned long v = crc32(0, (const unsigned char *)before.p, (unsigned)before.n);
    for (int i = 5; i >= 0; i--) {
        out[i] = base62[v % 62];
        v /= 62;
    }
}

void key_token_make(char *out)
{
    memcpy(out, "pmk_", 4);
    for (int i = 4; i < KEY_TOKEN_LENGTH - 6; i++)
        out[i] = base62[randombytes_uniform(62)];
    out[4 + KEY_LOOKUP_LENGTH] = '_';
    checksum((struct str){out, KEY_TOKEN_LENGTH - 6}, out + KEY_TOKEN_LENGTH - 6);
    out[KEY_TOKEN_LENGTH] = 0;
}

static bool all_base62(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))
            return false;
    }
    return true;
}

bool key_token_parse(struct str token, struct str *out_lookup)
{
    const size_t secret_at = 4 + KEY_LOOKUP_LENGTH + 1;
    if (token.n != KEY_TOKEN_LENGTH || memcmp(token.p, "pmk_", 4) != 0 ||
        token.p[secret_at - 1] != '_')
        return false;
    struct str lookup = {token.p + 4, KEY_LOOKUP_LENGTH};
    if (!all_base62(lookup) || !all_base62((struct str){token.p + secret_at, token.n - secret_at}))
        return false;
    char sum[6];
    checksum((struct str){token.p, token.n - 6}, sum);
    if (memcmp(sum, token.p + token.n - 6, 6) != 0)
        return false;
    *out_lookup = lookup;
    return true;
}

err key_hash_make(struct str token, char *out)
{
    static_assert(KEY_HASH_MAX >= crypto_pwhash_argon2id_STRBYTES, "room for a PHC string");
    if (crypto_pwhash_argon2id_str(out, token.p, token.n, OPSLIMIT, MEMLIMIT) != 0)
        return fail(E_UNAVAILABLE, "not enough memory to hash a key");
    return 0;
}

bool key_hash_verify(const char *hash, struct str token)
{
    return crypto_pwhash_argon2id_str_verify(hash, token.p, token.n) == 0;
}

enum http_scope key_scope_of(struct str name)
{
    if (str_is(name, "read"))
        return SCOPE_READ;
    if (str_is(name, "write"))
        return SCOPE_WRITE;
    return str_is(name, "admin") ? SCOPE_ADMIN : SCOPE_NONE;
}

const char *key_scope_name(enum http_scope scope)
{
    static const char *const names[] = {"none", "read", "write", "admin"};
    return names[scope];
}

/* The cache */

static void digest_of(const struct auth *a, struct str token, unsigned char out[32])
{
    crypto_generichash(out, 32, (const unsigned char *)token.p, token.n, a->digest_key,
                       sizeof a->digest_key);
}

static struct seen *slot_at(struct auth *a, const unsigned char digest[32], int which)
{
    uint32_t n;
    memcpy(&n, digest + (size_t)which * sizeof n, sizeof n);
    return &a->seen[n % SLOTS];
}

/* With cache_lock held. */
static struct seen *find_seen(struct auth *a, const unsigned char digest[32])
{
    for (int which = 0; which < 2; which++) {
        struct seen *s = slot_at(a, digest, which);
        if (s->used && sodium_memcmp(s->digest, digest, 32) == 0)
            return s;
    }
    return NULL;
}

static void remember(struct auth *a, const unsigned char digest[32], const struct http_auth *who,
                     int64_t now)
{
    AUTO_LOCK(&a->cache_lock);
    struct seen *s = find_seen(a, digest);
    if (s == NULL) {
        struct seen *one = slot_at(a, digest, 0), *two = slot_at(a, digest, 1);
        s = !one->used || (two->used && one->verified_at <= two->verified_at) ? one : two;
    }
    *s = (struct seen){.used = true, .good = who != NULL, .verified_at = now, .checked_at = now};
    if (who)
        s->who = *who;
    memcpy(s->digest, digest, 32);
}

static void forget(struct auth *a, const unsigned char digest[32])
{
    AUTO_LOCK(&a->cache_lock);
    struct seen *s = find_seen(a, digest);
    if (s)
        s->used = false;
}

void auth_forget(struct auth *a, const char *key_id)
{
    CHECK(a, AUTH_MAGIC);
    AUTO_LOCK(&a->cache_lock);
    for (size_t i = 0; i < SLOTS; i++)
        if (a->seen[i].used && strcmp(a->seen[i].who.key_id, key_id) == 0)
            a->seen[i].used = false;
}

/* Failures */

static struct failures *failures_of(struct auth *a, struct str lookup)
{
    unsigned char h[crypto_generichash_BYTES_MIN];
    crypto_generichash(h, sizeof h, (const unsigned char *)lookup.p, lookup.n, a->digest_key,
                       sizeof a->digest_key);
    struct failures *f = &a->failures[(h[0] | h[1] << 8) % FAILURE_SLOTS];
    if (memcmp(f->lookup, lookup.p, KEY_LOOKUP_LENGTH) != 0) {
        *f = (struct failures){0};
        memcpy(f->lookup, lookup.p, KEY_LOOKUP_LENGTH);
    }
    return f;
}

static bool too_many_failures(struct auth *a, struct str lookup, int64_t now)
{
    AUTO_LOCK(&a->cache_lock);
    struct failures *f = failures_of(a, lookup);
    return f->count >= FAILURES_MAX && now - f->since < FAILURES_MS;
}

static void note_failure(struct auth *a, struct str lookup, int64_t now)
{
    AUTO_LOCK(&a->cache_lock);
    struct failures *f = failures_of(a, lookup);
    if (now - f->since >= FAILURES_MS) {
        f->count = 0;
        f->since = now;
    }
    f->count++;
}

/* Hashing */

static err too_many_tokens(void)
{
    return fail_as(E_QUOTA, "too_many_requests", "too many new API keys at once; try again");
}

/* With turn_lock held. */
static struct flight *find_flight(struct auth *a, const unsigned char digest[32])
{
    for (size_t i = 0; i < HASHING_MAX + WAITING_MAX; i++)
        if (a->flights[i].used && memcmp(a->flights[i].digest, digest, 32) == 0)
            return &a->flights[i];
    return NULL;
}

/* With turn_lock held; NULL when all are used. */
static struct flight *new_flight(struct auth *a, const unsigned char digest[32])
{
    for (size_t i = 0; i < HASHING_MAX + WAITING_MAX; i++) {
        struct flight *f = &a->flights[i];
        if (f->used)
            continue;
        f->used = true;
        memcpy(f->digest, digest, 32);
        return f;
    }
    return NULL;
}

/* With turn_lock held: until the flight of this token is over, or (digest NULL) argon2 has a turn
   to give. */
static bool wait_for_turn(struct auth *a, const unsigned char *digest)
{
    int64_t deadline = clock_monotonic_ms(clock_real()) + HASH_WAIT_MS, left = HASH_WAIT_MS;
    a->waiting++;
    while ((digest ? find_flight(a, digest) != NULL : a->hashing >= HASHING_MAX) && left > 0) {
        cond_wait_ms(&a->turn_free, &a->turn_lock, left); /* the end of a flight */
        left = deadline - clock_monotonic_ms(clock_real());
    }
    a->waiting--;
    return left > 0;
}

/* *out is NULL if another thread has hashed this token meanwhile: look at the cache again. */
static err take_turn(struct auth *a, const unsigned char digest[32], struct flight **out)
{
    AUTO_LOCK(&a->turn_lock);
    if (find_flight(a, digest)) {
        if (!wait_for_turn(a, digest))
            return too_many_tokens();
        *out = NULL;
        return 0;
    }
    struct flight *mine = new_flight(a, digest);
    if (mine == NULL)
        return too_many_tokens();
    if (!wait_for_turn(a, NULL)) {
        mine->used = false;
        pthread_cond_broadcast(&a->turn_free);
        return too_many_tokens();
    }
    a->hashing++;
    *out = mine;
    return 0;
}

static void end_turn(struct auth *a, struct flight *flight)
{
    AUTO_LOCK(&a->turn_lock);
    a->hashing--;
    flight->used = false;
    pthread_cond_broadcast(&a->turn_free);
}

/* The row */

static err read_key(struct db_conn *c, void *arg)
{
    struct key_row *k = arg;
    struct db_rows *r;
    TRY(db_query(c, sql_by_lookup, DB_ARGS(DB_S(k->lookup)), &r));
    if (db_next(r)) {
        struct str tenant = db_str(r, 0), id = db_str(r, 1), hash = db_str(r, 3);
        k->found = tenant.n < ID_MAX && id.n < ID_MAX && hash.n < KEY_HASH_MAX;
        if (k->found) {
            memcpy(k->who.tenant, tenant.p, tenant.n);
            memcpy(k->who.key_id, id.p, id.n);
            memcpy(k->hash, hash.p, hash.n);
            k->who.scope = key_scope_of(db_str(r, 2));
            k->revoked = !db_is_null(r, 4) || k->who.scope == SCOPE_NONE;
        }
    }
    TRY(db_rows_done(r));
    struct quota_limits limits;
    if (!k->found)
        return 0;
    TRY(quota_limits(c, k->who.tenant, &limits));
    k->who.requests_per_minute = limits.of[QUOTA_REQUESTS_PER_MINUTE];
    k->who.limited = k->who.requests_per_minute >= 0;
    return 0;
}

/* The front */

static err refused(void)
{
    return fail(E_UNAUTHORIZED, "the API key is not valid");
}

enum verdict {
    UNSEEN,
    GOOD,       /* verified, row looked at just now */
    GOOD_STALE, /* verified within 60 s; the row must be looked at */
    KNOWN,      /* was good once; must be hashed again */
    BAD         /* refused within 60 s */
};

static enum verdict look_up(struct auth *a, const unsigned char digest[32], int64_t now,
                            struct http_auth *out)
{
    AUTO_LOCK(&a->cache_lock);
    struct seen *s = find_seen(a, digest);
    if (s == NULL)
        return UNSEEN;
    bool fresh = now - s->verified_at < VERIFIED_MS;
    if (!s->good)
        return fresh ? BAD : UNSEEN;
    if (!fresh)
        return KNOWN;
    *out = s->who;
    return now - s->checked_at < CHECKED_MS ? GOOD : GOOD_STALE;
}

static void note_checked(struct auth *a, const unsigned char digest[32],
                         const struct http_auth *who, int64_t now)
{
    AUTO_LOCK(&a->cache_lock);
    struct seen *s = find_seen(a, digest);
    if (s == NULL || !s->good)
        return;
    s->checked_at = now;
    s->who = *who; /* the limits may have changed */
}

/* A token that only argon2 can judge; the verdict is in the cache afterwards. */
static err judge(struct auth *a, const struct key_row *k, struct str token, bool was_good,
                 const unsigned char digest[32], int64_t now)
{
    if (!was_good && too_many_failures(a, k->lookup, now))
        return fail_as(E_QUOTA, "too_many_requests",
                       "too many wrong secrets for this API key; try again in a minute");
    struct flight *flight = NULL;
    TRY(take_turn(a, digest, &flight));
    if (flight == NULL)
        return 0;
    struct http_auth who;
    enum verdict meanwhile = look_up(a, digest, now, &who);
    if (meanwhile == UNSEEN || meanwhile == KNOWN) {
        bool good = key_hash_verify(k->hash, token);
        remember(a, digest, good ? &k->who : NULL, now);
        if (!good)
            note_failure(a, k->lookup, now);
    }
    end_turn(a, flight);
    return 0;
}

/* One look at the cache, then at the row, then at argon2; *out_again: look once more. */
static err authenticate_once(struct auth *a, struct str token, struct str lookup,
                             const unsigned char digest[32], struct http_auth *out, bool *out_again)
{
    int64_t now = clock_monotonic_ms(a->clock);
    struct http_auth who;
    enum verdict verdict = look_up(a, digest, now, &who);
    *out_again = false;
    if (verdict == BAD)
        return refused();
    if (verdict != GOOD) {
        struct key_row k = {.lookup = lookup};
        TRY(db_read(a->db, read_key, &k));
        if (!k.found || k.revoked) {
            forget(a, digest);
            return refused();
        }
        who = k.who;
        if (verdict == GOOD_STALE) {
            note_checked(a, digest, &who, now);
        } else {
            *out_again = true;
            return judge(a, &k, token, verdict == KNOWN, digest, now);
        }
    }
    *out = who;
    return 0;
}

static err authenticate(struct auth *a, struct str token, struct http_auth *out)
{
    struct str lookup;
    if (!key_token_parse(token, &lookup))
        return refused();
    unsigned char digest[32];
    digest_of(a, token, digest);
    bool again;
    do
        TRY(authenticate_once(a, token, lookup, digest, out, &again));
    while (again); /* each round but the last has seen a token judged */
    return 0;
}

err auth_authenticate(struct service *service, struct str token, struct http_auth *out)
{
    CHECK(service->auth, AUTH_MAGIC);
    return authenticate(service->auth, token, out);
}

bool auth_authenticate_cached(struct service *service, struct str token, struct http_auth *out)
{
    struct auth *a = service->auth;
    CHECK(a, AUTH_MAGIC);
    struct str lookup;
    if (!key_token_parse(token, &lookup))
        return false; /* the other one says why */
    unsigned char digest[32];
    digest_of(a, token, digest);
    return look_up(a, digest, clock_monotonic_ms(a->clock), out) == GOOD;
}

struct auth *auth_new(struct db *db, const struct clock *clock)
{
    if (sodium_init() < 0)
        abort();
    struct auth *a = mem_alloc(sizeof *a);
    a->magic = AUTH_MAGIC;
    a->db = db;
    a->clock = clock;
    a->seen = mem_alloc(SLOTS * sizeof *a->seen);
    rand_bytes(a->digest_key, sizeof a->digest_key);
    pthread_mutex_init(&a->cache_lock, NULL);
    pthread_mutex_init(&a->turn_lock, NULL);
    cond_init(&a->turn_free);
    return a;
}

void auth_free(struct auth *a)
{
    if (a == NULL)
        return;
    CHECK(a, AUTH_MAGIC);
    secret_wipe(a->digest_key, sizeof a->digest_key);
    pthread_mutex_destroy(&a->cache_lock);
    pthread_mutex_destroy(&a->turn_lock);
    pthread_cond_destroy(&a->turn_free);
    mem_free(a->seen);
    a->magic = 0;
    mem_free(a);
}
