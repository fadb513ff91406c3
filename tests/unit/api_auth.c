/* src/api/auth.c and keys.c: API keys (R14). The vectors come from other implementations. */
#include <sodium.h>

/* Counts argon2 runs, and can hold them. */
static int gated_verify(const char *hash, const char *token, unsigned long long n);
#define crypto_pwhash_argon2id_str_verify gated_verify
#include "../../src/api/auth.c"
#undef crypto_pwhash_argon2id_str_verify

#include "api/keys.h"
#include "base/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

#include "db_support.h"

static struct {
    pthread_mutex_t m;
    pthread_cond_t c;
    bool shut;
    int inside, most, runs;
} gate = {.m = PTHREAD_MUTEX_INITIALIZER};

static int gated_verify(const char *hash, const char *token, unsigned long long n)
{
    {
        AUTO_LOCK(&gate.m);
        gate.runs++;
        gate.inside++;
        gate.most = gate.inside > gate.most ? gate.inside : gate.most;
        pthread_cond_broadcast(&gate.c);
        while (gate.shut)
            cond_wait_ms(&gate.c, &gate.m, 1000);
    }
    int rc = crypto_pwhash_argon2id_str_verify(hash, token, n);
    AUTO_LOCK(&gate.m);
    gate.inside--;
    return rc;
}

struct fixture {
    struct test_db at;
    struct clock *clock;
    struct service service;
    char tenant[ID_MAX];
    struct key_new key;
};

static err make_tenant(struct db_conn *c, void *arg)
{
    return tenant_insert(c, "test", 1, arg);
}

static err insert_key(struct db_conn *c, void *arg)
{
    return key_insert(c, arg);
}

static struct key_new add_key(struct fixture *f, const char *name, enum http_scope scope)
{
    struct key_new key;
    assert_int_equal(key_draw(f->tenant, name, scope, 1000, &key), 0);
    assert_int_equal(db_write(f->at.db, insert_key, &key), 0);
    return key;
}

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    test_db_open(&f->at);
    f->clock = clock_fake_new(1000000);
    f->service = (struct service){.db = f->at.db, .clock = f->clock};
    f->service.auth = auth_new(f->at.db, f->clock);
    assert_int_equal(db_write(f->at.db, make_tenant, f->tenant), 0);
    f->key = add_key(f, "first", SCOPE_WRITE);
    gate.runs = gate.most = 0;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    auth_free(f->service.auth);
    clock_fake_free(f->clock);
    test_db_close(&f->at);
    mem_free(f);
    return 0;
}

static json_t *read_vectors(const char *path)
{
    AUTO_BUF text = {0};
    assert_int_equal(fd_read_file(path, 1 << 20, &text), 0);
    json_t *j = NULL;
    assert_int_equal(json_read(buf_str(&text), &j), 0);
    return j;
}

static void tokens_match_the_vectors(void **state)
{
    (void)state;
    AUTO_JSON file = read_vectors("tests/vectors/api_key_vectors.json");
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(file, "vectors"), i, v)
    {
        struct str lookup;
        bool valid = key_token_parse(json_get_str(v, "key"), &lookup);
        assert_int_equal(valid, json_get_bool(v, "valid", false));
        if (valid)
            assert_true(str_eq(lookup, json_get_str(v, "keyId")));
    }
    assert_true(i >= 15);
}

static void hashes_match_the_vectors(void **state)
{
    (void)state;
    AUTO_JSON file = read_vectors("tests/vectors/argon2id_vectors.json");
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(file, "vectors"), i, v)
    {
        const char *phc = json_get_c(v, "phc");
        bool verifies = key_hash_verify(phc, json_get_str(v, "password"));
        assert_int_equal(verifies, json_get_bool(v, "verifies", false));
    }
    assert_true(i >= 30);
}

static void new_tokens_are_well_formed_and_differ(void **state)
{
    (void)state;
    char one[KEY_TOKEN_LENGTH + 1], two[KEY_TOKEN_LENGTH + 1];
    struct str lookup;
    for (int i = 0; i < 200; i++) {
        key_token_make(one);
        key_token_make(two);
        assert_true(key_token_parse(str_of(one), &lookup));
        assert_string_not_equal(one, two);
    }
}

static void the_checksum_catches_every_single_change(void **state)
{
    struct fixture *f = *state;
    struct str lookup;
    for (size_t i = 0; i < KEY_TOKEN_LENGTH; i++) {
        char changed[KEY_TOKEN_LENGTH + 1];
        memcpy(changed, f->key.token, sizeof changed);
        changed[i] = changed[i] == 'a' ? 'b' : 'a';
        assert_false(key_token_parse(str_of(changed), &lookup));
    }
    assert_false(key_token_parse((struct str){f->key.token, KEY_TOKEN_LENGTH - 1}, &lookup));
    assert_false(key_token_parse((struct str){0}, &lookup));
}

static void hashes_are_argon2id_with_the_agreed_cost(void **state)
{
    struct fixture *f = *state;
    assert_memory_equal(f->key.hash, "$argon2id$v=19$m=19456,t=2,p=1$", 31);
}

static err authenticates(struct fixture *f, const char *token)
{
    struct http_auth who = {0};
    err e = auth_authenticate(&f->service, str_of(token), &who);
    if (e == 0) {
        assert_string_equal(who.tenant, f->tenant);
        assert_true(who.key_id[0] && who.scope != SCOPE_NONE);
    }
    return e;
}

static bool is_cached(struct fixture *f, const char *token)
{
    struct http_auth who;
    return auth_authenticate_cached(&f->service, str_of(token), &who);
}

static void a_key_is_hashed_once_a_minute(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(authenticates(f, f->key.token), 0);
    assert_int_equal(gate.runs, 1);
    for (int second = 0; second < 59; second++) {
        clock_fake_advance_ms(f->clock, 1000);
        assert_int_equal(authenticates(f, f->key.token), 0);
    }
    assert_int_equal(gate.runs, 1);
    clock_fake_advance_ms(f->clock, 1001);
    assert_int_equal(authenticates(f, f->key.token), 0);
    assert_int_equal(gate.runs, 2);
}

static void the_loop_trusts_a_look_at_the_row_for_one_second(void **state)
{
    struct fixture *f = *state;
    assert_false(is_cached(f, f->key.token));
    assert_int_equal(authenticates(f, f->key.token), 0);
    assert_true(is_cached(f, f->key.token));
    clock_fake_advance_ms(f->clock, 1000);
    assert_false(is_cached(f, f->key.token));
    assert_int_equal(authenticates(f, f->key.token), 0);
    assert_true(is_cached(f, f->key.token));
    assert_int_equal(gate.runs, 1);
}

static void scopes_come_with_the_key(void **state)
{
    struct fixture *f = *state;
    struct key_new reader = add_key(f, "reader", SCOPE_READ);
    struct http_auth who;
    assert_int_equal(auth_authenticate(&f->service, str_of(reader.token), &who), 0);
    assert_int_equal(who.scope, SCOPE_READ);
    assert_string_equal(who.key_id, reader.id);
}

static err revoke_key(struct db_conn *c, void *arg)
{
    struct fixture *f = arg;
    return key_revoke(c, f->tenant, str_of(f->key.id), 5000);
}

static void a_revocation_by_another_process_holds_within_a_second(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(authenticates(f, f->key.token), 0);
    assert_int_equal(db_write(f->at.db, revoke_key, f), 0);
    clock_fake_advance_ms(f->clock, 1000);
    assert_false(is_cached(f, f->key.token));
    assert_int_equal(authenticates(f, f->key.token), E_UNAUTHORIZED);
    assert_int_equal(gate.runs, 1);
}

static void our_own_revocation_holds_at_once(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(authenticates(f, f->key.token), 0);
    assert_int_equal(db_write(f->at.db, revoke_key, f), 0);
    auth_forget(f->service.auth, f->key.id);
    assert_false(is_cached(f, f->key.token));
    assert_int_equal(authenticates(f, f->key.token), E_UNAUTHORIZED);
}

/* A well-formed token with the id of `key` and another secret. */
static void forge(const struct key_new *key, char out[KEY_TOKEN_LENGTH + 1])
{
    key_token_make(out);
    memcpy(out, key->token, 4 + KEY_LOOKUP_LENGTH);
    checksum((struct str){out, KEY_TOKEN_LENGTH - 6}, out + KEY_TOKEN_LENGTH - 6);
}

static void unknown_ids_and_bad_checksums_are_never_hashed(void **state)
{
    struct fixture *f = *state;
    char token[KEY_TOKEN_LENGTH + 1];
    for (int i = 0; i < 50; i++) {
        key_token_make(token);
        assert_int_equal(authenticates(f, token), E_UNAUTHORIZED);
        token[KEY_TOKEN_LENGTH - 1] ^= 1;
        assert_int_equal(authenticates(f, token), E_UNAUTHORIZED);
    }
    assert_int_equal(authenticates(f, ""), E_UNAUTHORIZED);
    assert_int_equal(gate.runs, 0);
}

#define MANY_KEYS 10000
#define MANY_REQUESTS 500

static err insert_many(struct db_conn *c, void *arg)
{
    struct key_new key = *(struct key_new *)arg;
    for (int i = 0; i < MANY_KEYS; i++) {
        key_token_make(key.token);
        id_new("key", 1000, key.id);
        TRY(key_insert(c, &key));
    }
    return 0;
}

/* How the database finds a key, in its own words. */
static err explain(struct db_conn *c, void *arg)
{
    char *out = arg, sql[512];
    struct db_rows *r;
    snprintf(sql, sizeof sql, "EXPLAIN QUERY PLAN %s", sql_by_lookup);
    TRY(db_query(c, sql, DB_ARGS(DB_C("x")), &r));
    if (db_next(r))
        snprintf(out, 256, "%.*s", STR_ARG(db_str(r, 3)));
    return db_rows_done(r);
}

static void ten_thousand_keys_make_no_request_dearer(void **state)
{
    struct fixture *f = *state;
    char token[KEY_TOKEN_LENGTH + 1], plan[256] = "";
    assert_int_equal(db_write(f->at.db, insert_many, &f->key), 0);
    assert_int_equal(db_read(f->at.db, explain, plan), 0);
    assert_non_null(strstr(plan, "SEARCH api_keys USING INDEX")); /* one row, not all */
    for (int i = 0; i < MANY_REQUESTS; i++) {
        assert_int_equal(authenticates(f, f->key.token), 0);
        assert_true(is_cached(f, f->key.token)); /* not even a look at the database */
    }
    assert_int_equal(gate.runs, 1);
    for (int i = 0; i < MANY_REQUESTS; i++) {
        key_token_make(token);
        assert_int_equal(authenticates(f, token), E_UNAUTHORIZED);
    }
    assert_int_equal(gate.runs, 1);
}

static void a_wrong_secret_is_hashed_once(void **state)
{
    struct fixture *f = *state;
    char token[KEY_TOKEN_LENGTH + 1];
    forge(&f->key, token);
    for (int i = 0; i < 5; i++)
        assert_int_equal(authenticates(f, token), E_UNAUTHORIZED);
    assert_int_equal(gate.runs, 1);
    assert_false(is_cached(f, token));
}

static void guessing_a_secret_is_slowed_down_but_the_owner_is_not(void **state)
{
    struct fixture *f = *state;
    char token[KEY_TOKEN_LENGTH + 1];
    assert_int_equal(authenticates(f, f->key.token), 0);
    clock_fake_advance_ms(f->clock, 61000);
    for (int i = 0; i < FAILURES_MAX; i++) {
        forge(&f->key, token);
        assert_int_equal(authenticates(f, token), E_UNAUTHORIZED);
    }
    int runs = gate.runs;
    for (int i = 0; i < 5; i++) {
        forge(&f->key, token);
        assert_int_equal(authenticates(f, token), E_QUOTA);
    }
    assert_int_equal(gate.runs, runs);
    assert_int_equal(authenticates(f, f->key.token), 0);
    clock_fake_advance_ms(f->clock, 61000);
    assert_int_equal(authenticates(f, token), E_UNAUTHORIZED);
}

#define KEYS (HASHING_MAX + WAITING_MAX)

struct asker {
    struct fixture *f;
    struct key_new key;
    err result;
    pthread_t thread;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    a->result = authenticates(a->f, a->key.token);
    return NULL;
}

static bool all_in_place(struct fixture *f)
{
    struct auth *a = f->service.auth;
    AUTO_LOCK(&a->turn_lock);
    return a->hashing == HASHING_MAX && a->waiting == WAITING_MAX;
}

static void at_most_two_hashes_run_and_four_wait(void **state)
{
    struct fixture *f = *state;
    cond_init(&gate.c);
    static struct asker askers[KEYS];
    for (size_t i = 0; i < KEYS; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%zu", i);
        askers[i] = (struct asker){.f = f, .key = add_key(f, name, SCOPE_READ)};
    }
    gate.shut = true;
    for (size_t i = 0; i < KEYS; i++)
        askers[i].thread = thread_start("asker", ask, &askers[i]);
    while (!all_in_place(f))
        sched_yield();
    assert_int_equal(authenticates(f, f->key.token), E_QUOTA);
    {
        AUTO_LOCK(&gate.m);
        gate.shut = false;
        pthread_cond_broadcast(&gate.c);
    }
    for (size_t i = 0; i < KEYS; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].result, 0);
    }
    assert_int_equal(gate.most, HASHING_MAX);
    assert_int_equal(authenticates(f, f->key.token), 0);
}

static bool all_wait(struct fixture *f, int waiting)
{
    struct auth *a = f->service.auth;
    AUTO_LOCK(&a->turn_lock);
    return a->hashing == 1 && a->waiting == waiting;
}

#define CROWD 40

static void a_crowd_with_one_key_is_hashed_once_and_let_in(void **state)
{
    struct fixture *f = *state;
    cond_init(&gate.c);
    static struct asker askers[CROWD];
    gate.shut = true;
    for (size_t i = 0; i < CROWD; i++) {
        askers[i] = (struct asker){.f = f, .key = f->key};
        askers[i].thread = thread_start("asker", ask, &askers[i]);
    }
    while (!all_wait(f, CROWD - 1))
        sched_yield();
    {
        AUTO_LOCK(&gate.m);
        gate.shut = false;
        pthread_cond_broadcast(&gate.c);
    }
    for (size_t i = 0; i < CROWD; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].result, 0);
    }
    assert_int_equal(gate.runs, 1);
}

static err list_keys(struct db_conn *c, void *arg)
{
    struct fixture *f = arg;
    AUTO_ARENA a = arena_new();
    struct key_row_shown *rows = NULL;
    size_t n = 0;
    struct key_filter filter = {.limit = 10};
    TRY(key_list(c, a, f->tenant, &filter, &rows, &n));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].name, "first");
    assert_string_equal(rows[0].last4, f->key.token + KEY_TOKEN_LENGTH - 4);
    assert_int_equal(rows[0].revoked_at_ms, -1);
    TRY(key_list(c, a, "tenant_other", &filter, &rows, &n));
    assert_int_equal(n, 0);
    return 0;
}

static void a_tenant_sees_its_own_keys_only(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(db_read(f->at.db, list_keys, f), 0);
}

static err revoke_foreign(struct db_conn *c, void *arg)
{
    struct fixture *f = arg;
    return key_revoke(c, "tenant_other", str_of(f->key.id), 1);
}

static void the_key_of_another_tenant_cannot_be_revoked(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(db_write(f->at.db, revoke_foreign, f), E_NOT_FOUND);
    assert_int_equal(authenticates(f, f->key.token), 0);
}

static void the_secret_is_not_in_the_database_file(void **state)
{
    struct fixture *f = *state;
    char path[128];
    AUTO_BUF bytes = {0};
    static const char *const names[] = {"control.db", "control.db-wal"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", f->at.dir, names[i]);
        assert_int_equal(fd_read_file(path, 64 << 20, &bytes), 0);
    }
    const char *secret = f->key.token + 4 + KEY_LOOKUP_LENGTH + 1;
    assert_non_null(memmem(bytes.p, bytes.n, f->key.id, strlen(f->key.id)));
    assert_null(memmem(bytes.p, bytes.n, secret, KEY_SECRET_LENGTH));
}

#define WITH_DB(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_match_the_vectors),
        cmocka_unit_test(hashes_match_the_vectors),
        cmocka_unit_test(new_tokens_are_well_formed_and_differ),
        WITH_DB(the_checksum_catches_every_single_change),
        WITH_DB(hashes_are_argon2id_with_the_agreed_cost),
        WITH_DB(a_key_is_hashed_once_a_minute),
        WITH_DB(the_loop_trusts_a_look_at_the_row_for_one_second),
        WITH_DB(scopes_come_with_the_key),
        WITH_DB(a_revocation_by_another_process_holds_within_a_second),
        WITH_DB(our_own_revocation_holds_at_once),
        WITH_DB(unknown_ids_and_bad_checksums_are_never_hashed),
        WITH_DB(ten_thousand_keys_make_no_request_dearer),
        WITH_DB(a_wrong_secret_is_hashed_once),
        WITH_DB(guessing_a_secret_is_slowed_down_but_the_owner_is_not),
        WITH_DB(at_most_two_hashes_run_and_four_wait),
        WITH_DB(a_crowd_with_one_key_is_hashed_once_and_let_in),
        WITH_DB(a_tenant_sees_its_own_keys_only),
        WITH_DB(the_key_of_another_tenant_cannot_be_revoked),
        WITH_DB(the_secret_is_not_in_the_database_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
